"""Pictures of results; they need matplotlib, which the extra ``report`` installs."""

"""Tree ensembles of scikit-learn, XGBoost, LightGBM and CatBoost, read exactly or refused by name."""

from certus.bounds.trees.model import TreeColumn, TreeModel
from certus.bounds.trees.reading import is_tree_model, load_ensemble, read_ensemble

__all__ = ["TreeColumn", "TreeModel", "is_tree_model", "load_ensemble", "read_ensemble"]

"use strict";
document.body.classList.add("scripted");
const report = JSON.parse(document.getElementById("report-data").textContent);
const ink = () => {
  const style = getComputedStyle(document.documentElement);
  return { ink: style.getPropertyValue("--ink").trim(), line: style.getPropertyValue("--line").trim() };
};
const dressed = (layout) => {
  const { ink: text, line } = ink();
  const axis = { gridcolor: line, linecolor: line, zerolinecolor: line };
  return {
    ...layout, autosize: true, showlegend: false, margin: { l: 50, r: 12, t: 8, b: 46 },
    ...(document.body.classList.contains("paper") ? { height: Math.round(0.62 * layout.height) } : {}),
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: text, size: 12 },
    xaxis: { ...axis, ...layout.xaxis }, yaxis: { ...axis, ...layout.yaxis },
  };
};
const draw = () => {
  for (const [id, chart] of Object.entries(report.charts)) {
    // Charts of a closed appendix have no width: they are drawn when it opens.
    if (document.getElementById(id).offsetParent === null) continue;
    Plotly.react(id, chart.data, dressed(chart.layout), { responsive: true, displayModeBar: false });
  }
};
draw();
const redraw = () => { draw(); move(); };
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
document.querySelector("details").addEventListener("toggle", () => redraw());
addEventListener("beforeprint", () => { document.body.classList.add("paper"); redraw(); });
addEventListener("afterprint", () => { document.body.classList.remove("paper"); redraw(); });

const slider = document.getElementById("slider");
function move() {
  if (!slider) return;
  const reading = report.readings[Number(slider.value)];
  document.getElementById("where").textContent = reading.words;
  for (const [cell, text] of Object.entries(reading.cells)) document.getElementById(cell).textContent = text;
  for (const [id, place] of Object.entries(reading.marks)) {
    if (document.getElementById(id).data) Plotly.relayout(id, { "shapes[0].x0": place, "shapes[0].x1": place });
  }
}
if (slider) {
  slider.addEventListener("input", move);
  move();
}

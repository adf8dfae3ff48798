"use strict";
// Everything can be read without this script; it adds the moment that runs through all plots, and the filters.

(function moment() {
  const clock = document.querySelector(".clock");
  if (!clock) return;
  const end = Number(clock.dataset.end);
  const slider = document.getElementById("moment");
  const shown = document.getElementById("moment-time");
  const plots = [...clock.querySelectorAll(".plot")].map(read);

  function read(figure) {
    const canvas = figure.querySelector(".canvas");
    const low = Number(canvas.dataset.low), high = Number(canvas.dataset.high);
    const wide = canvas.viewBox.baseVal.width, tall = canvas.viewBox.baseVal.height;
    const series = [...canvas.querySelectorAll("polyline, polygon")].map((line) => ({
      name: line.dataset.side || line.dataset.name,
      points: line.getAttribute("points").trim().split(/\s+/).map((pair) => {
        const [x, y] = pair.split(",").map(Number);
        return [x, high - (y / tall) * (high - low)];
      }),
    }));
    const values = new Map([...figure.querySelectorAll("[data-for]")].map((e) => [e.dataset.for, e]));
    return { canvas, wide, series, values, stacked: "stack" in canvas.dataset, cursor: canvas.querySelector(".cursor") };
  }

  // The value of a line at x: of the nearest of its points; none where the line is not.
  function at(points, x, reach) {
    let first = 0, last = points.length - 1;
    if (last < 0 || x < points[0][0] - reach || x > points[last][0] + reach) return null;
    while (last - first > 1) {
      const middle = (first + last) >> 1;
      if (points[middle][0] <= x) first = middle; else last = middle;
    }
    return x - points[first][0] <= points[last][0] - x ? points[first][1] : points[last][1];
  }

  // A staircase has two points at each of its edges: between them the value is that of the one before.
  function step(points, x) {
    const inner = points.slice(1, -1);  // the corners on the ground
    if (!inner.length || x < inner[0][0] || x > inner[inner.length - 1][0]) return null;
    let found = inner[0];
    for (const point of inner) { if (point[0] > x) break; found = point; }
    return found[1];
  }

  function spell(value) {
    const size = Math.abs(value);
    if (size >= 100) return Math.round(value).toLocaleString("en");
    return size === 0 ? "0" : size < 0.001 ? value.toExponential(1) : String(Number(value.toPrecision(3)));
  }

  function time(seconds) {
    if (seconds < 60) return seconds.toPrecision(3) + " s";
    const whole = Math.round(seconds), two = (n) => String(n).padStart(2, "0");
    const hours = Math.floor(whole / 3600), minutes = Math.floor(whole / 60) % 60;
    return hours ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
  }

  function sides(plot, x) {
    const found = new Map();
    for (const line of plot.series) {
      const value = at(line.points, x, plot.wide / 100);
      if (value !== null) found.set(line.name, [...(found.get(line.name) || []), value]);
    }
    return found;
  }

  function show(fraction) {
    clock.classList.add("live");
    const said = [];
    for (const plot of plots) {
      const x = fraction * plot.wide;
      plot.cursor.setAttribute("x1", x);
      plot.cursor.setAttribute("x2", x);
      if (plot.stacked) {
        const tops = plot.series.map((line) => [line.name, step(line.points, x)]).reverse();  // from the bottom up
        let below = 0;
        for (const [name, top] of tops) {
          plot.values.get(name).textContent = top === null ? "-" : spell(Math.max(0, top - below));
          below = top === null ? below : top;
        }
        continue;
      }
      const found = sides(plot, x);
      for (const [name, element] of plot.values) {
        const values = found.get(name) || [];
        const low = spell(Math.min(...values)), high = spell(Math.max(...values));
        element.textContent = !values.length ? "-" : low === high ? low : `${low} to ${high}`;
      }
      if (plot === plots[0]) for (const [name, element] of plot.values) said.push(`${name} ${element.textContent}`);
    }
    slider.value = String(Math.round(1000 * fraction));
    shown.textContent = time(fraction * end);
    slider.setAttribute("aria-valuetext", [shown.textContent, ...said].join(", "));
  }

  for (const { canvas } of plots) {
    canvas.addEventListener("pointermove", (event) => {
      const box = canvas.getBoundingClientRect();
      show(Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)));
    });
  }
  slider.addEventListener("input", () => show(slider.value / 1000));
  slider.addEventListener("focus", () => show(slider.value / 1000));
  clock.querySelector(".moment").hidden = false;
})();

(function filters() {
  const form = document.querySelector(".filters");
  const rows = [...document.querySelectorAll(".facts tbody tr")];
  const [kind, text, differs, count] = ["kind", "text", "differs", "count"].map((id) => document.getElementById(id));
  const words = rows.map((row) => row.textContent.toLowerCase());

  function apply() {
    const wanted = text.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, n) => {
      const fits = (!kind.value || row.dataset.kind === kind.value)
        && (!differs.checked || row.classList.contains("differs"))
        && wanted.every((word) => words[n].includes(word));
      row.hidden = !fits;
      shown += fits;
    });
    count.textContent = `${shown} of ${rows.length} facts`;
  }

  for (const control of [kind, text, differs]) control.addEventListener("input", apply);
  form.hidden = false;
  apply();
})();

(function paper() {
  // On paper nothing is folded away.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const part of opened) part.open = true;
  });
  addEventListener("afterprint", () => { for (const part of opened) part.open = false; });
})();

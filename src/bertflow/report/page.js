// Draws the charts of a bertflow report. Texts reach the page only as textContent: nothing in them is ever run.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const SIDES = ["before", "after"];
  const LEVELS = 16;
  // viridis: rising lightness, told apart in every kind of colour vision; the end next to the page's colour is left out
  const VIRIDIS = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"];
  const charts = {};
  const search = { sentences: "", words: "" };

  const element = (id) => document.getElementById(id);
  const isDark = () => root.dataset.theme === "dark";
  const clear = () => (isDark() ? 0.62 : 0.72); // light points on dark swallow each other sooner
  const color = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  const number = (value, digits = 2) => value.toFixed(digits).replace("-", "−");
  const thousands = (value) => value.toLocaleString("en-US");

  function shade(level) {
    const [low, high] = isDark() ? [0.3, 1] : [0, 0.92];
    const at = (low + ((high - low) * level) / (LEVELS - 1)) * (VIRIDIS.length - 1);
    const i = Math.min(Math.floor(at), VIRIDIS.length - 2);
    const [a, b] = [VIRIDIS[i], VIRIDIS[i + 1]].map((hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16)));
    return `rgb(${a.map((value, k) => Math.round(value + (b[k] - value) * (at - i))).join(",")})`;
  }

  function tip(lines, small) {
    const box = document.createElement("div");
    box.className = "tip";
    for (const line of lines) {
      const part = document.createElement("div");
      part.textContent = line;
      box.append(part);
    }
    const note = document.createElement("small");
    note.textContent = small;
    box.append(note);
    return box;
  }

  function base() {
    return {
      animation: false,
      textStyle: { fontFamily: getComputedStyle(document.body).fontFamily },
      aria: { enabled: false }, // the container has a label that says the finding
      tooltip: {
        confine: true, transitionDuration: 0, backgroundColor: color("card"), borderColor: color("line"),
        textStyle: { color: color("text") }, extraCssText: "white-space:normal",
      },
    };
  }

  function axis(name, more = {}) {
    return {
      name, nameLocation: "middle", nameGap: 28, nameTextStyle: { color: color("muted"), fontSize: 12 },
      axisLine: { lineStyle: { color: color("line") } }, axisTick: { show: false },
      axisLabel: { color: color("muted"), fontSize: 11 }, splitLine: { lineStyle: { color: color("grid") } }, ...more,
    };
  }

  // ---- maps -------------------------------------------------------------------------------------------------------

  /** Ranges that hold the points and the origin, with the same scale across and up. */
  function frame(points, box) {
    const spans = points.map((values) => {
      let [low, high] = [0, 0];
      for (const value of values) { if (value < low) low = value; if (value > high) high = value; }
      return [low, high];
    });
    const [width, height] = [box.clientWidth - 16, box.clientHeight - 16];
    const unit = 1.06 * Math.max((spans[0][1] - spans[0][0]) / width, (spans[1][1] - spans[1][0]) / height) || 1;
    return spans.map(([low, high], i) => {
      const half = (unit * (i ? height : width)) / 2;
      return [(low + high) / 2 - half, (low + high) / 2 + half];
    });
  }

  function drawMap(id, side) {
    const points = data[id], box = element(`${id}-${side}`), [xs, ys] = points[side];
    const [x, y] = frame(points[side], box);
    const line = { show: true, onZero: true, lineStyle: { color: color("muted"), width: 1, opacity: 0.55 } };
    const plain = { type: "value", axisLine: line, axisTick: { show: false }, axisLabel: { show: false }, splitLine: { show: false } };
    const groups = Array.from({ length: LEVELS }, () => []);
    for (let i = 0; i < xs.length; i++) groups[points.levels[i]].push([xs[i], ys[i], i]);
    const size = xs.length > 8000 ? 3.2 : xs.length > 1500 ? 4.5 : 6;
    const series = groups.map((group, level) => ({
      id: `level-${level}`, type: "scatter", data: group, symbolSize: size, large: true, largeThreshold: 3000,
      itemStyle: { color: shade(level), opacity: clear() }, emphasis: { disabled: true }, z: 2,
    }));
    series.push({
      id: "matches", type: "scatter", data: [], symbolSize: size + 4, z: 5, emphasis: { disabled: true },
      itemStyle: { color: color("match"), borderColor: color("card"), borderWidth: 1 },
    });
    const zoom = { type: "inside", filterMode: "none", zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false,
      moveOnMouseMove: matchMedia("(pointer: fine)").matches, minSpan: 1 };
    const options = base();
    options.grid = { left: 8, right: 8, top: 8, bottom: 8, containLabel: false };
    options.xAxis = { ...plain, min: x[0], max: x[1] };
    options.yAxis = { ...plain, min: y[0], max: y[1] };
    options.dataZoom = [{ ...zoom, xAxisIndex: 0 }, { ...zoom, yAxisIndex: 0 }];
    options.tooltip.trigger = "item";
    options.tooltip.formatter = (hit) => {
      const i = hit.data[2];
      return tip([points.labels[i]], id === "words"
        ? `rank ${thousands(i + 1)}, counted ${thousands(points.values[i])} times`
        : points.values[i] === null ? "density too low to tell" : `density ${number(points.values[i], 1)}`);
    };
    options.series = series;
    place(`${id}-${side}`, options);
    charts[`${id}-${side}`].off("mouseover").on("mouseover", (hit) => ring(id, hit.data && hit.data[2]));
    charts[`${id}-${side}`].off("mouseout").on("mouseout", () => ring(id, null));
    highlight(id);
  }

  /** Mark the same sentence in both maps. */
  function ring(id, i) {
    for (const side of SIDES) {
      const box = element(`${id}-${side}`);
      box.querySelector(".ring")?.remove();
      if (i === null || i === undefined) continue;
      const [xs, ys] = data[id][side];
      const [x, y] = charts[`${id}-${side}`].convertToPixel("grid", [xs[i], ys[i]]);
      if (x < 0 || y < 0 || x > box.clientWidth || y > box.clientHeight) continue;
      const mark = document.createElement("span");
      mark.className = "ring";
      mark.style.left = `${x}px`;
      mark.style.top = `${y}px`;
      box.append(mark);
    }
  }

  function highlight(id) {
    const points = data[id], wanted = search[id].trim().toLocaleLowerCase();
    const found = [];
    if (wanted) points.labels.forEach((label, i) => { if (label.toLocaleLowerCase().includes(wanted)) found.push(i); });
    for (const side of SIDES) {
      const chart = charts[`${id}-${side}`];
      if (!chart) continue;
      const [xs, ys] = points[side];
      const series = Array.from({ length: LEVELS }, (_, level) => ({ id: `level-${level}`, itemStyle: { opacity: wanted ? 0.16 : clear() } }));
      series.push({ id: "matches", data: found.map((i) => [xs[i], ys[i], i]) });
      chart.setOption({ series });
    }
    return found;
  }

  function onSearch(input) {
    const id = input.dataset.search, labels = data[id].labels;
    search[id] = input.value;
    const found = highlight(id), list = element(`${id}-matches`), asked = input.value.trim() !== "";
    element(`${id}-count`).value = asked ? `${thousands(found.length)} of ${thousands(labels.length)} match` : `${thousands(labels.length)} shown`;
    list.hidden = !found.length;
    list.replaceChildren(...found.slice(0, 8).map((i) => {
      const item = document.createElement("li");
      item.textContent = labels[i];
      return item;
    }));
  }

  function onZoom(button) {
    const chart = charts[button.dataset.chart], factor = { in: 0.6, out: 1 / 0.6 }[button.dataset.zoom];
    const batch = chart.getOption().dataZoom.map((one, dataZoomIndex) => {
      const middle = (one.start + one.end) / 2, half = Math.min(50, ((one.end - one.start) / 2) * (factor ?? 100));
      const start = Math.max(0, Math.min(middle - half, 100 - 2 * half));
      return { dataZoomIndex, start, end: start + 2 * half };
    });
    chart.dispatchAction({ type: "dataZoom", batch });
  }

  // ---- the other charts -------------------------------------------------------------------------------------------

  function drawCosines(side) {
    const { edges, wider } = data.cosines, one = data.cosines[side], fill = color(side);
    // wider bins hold more pairs: all curves are in pairs a narrow bin
    const points = (shares, wide) => shares.map((share, i) => [(edges[i * wide] + edges[(i + 1) * wide]) / 2, (100 * share) / wide]);
    const top = Math.max(...SIDES.flatMap((s) => [...points(data.cosines[s].shares, 1), ...points(data.cosines[s].labelled ?? [], wider)]).map((point) => point[1]));
    const mark = (value, type, name, distance) => ({
      xAxis: value, lineStyle: { type, color: color("text"), width: 1.5 },
      label: { formatter: `${name} ${number(value)}`, color: color("text"), fontSize: 11, position: "end", distance },
    });
    const options = base();
    options.grid = { left: 46, right: 20, top: 40, bottom: 44 };
    options.xAxis = axis("cosine", { type: "value", min: edges[0], max: 1, interval: 0.2, splitLine: { show: false },
      axisLabel: { color: color("muted"), fontSize: 11, formatter: (x) => number(x, 1) } });
    options.yAxis = axis("% of pairs", { type: "value", max: Math.ceil(top), nameGap: 32 });
    options.tooltip.trigger = "axis";
    options.tooltip.formatter = (hits) => tip(
      hits.map((hit) => `${hit.seriesName}: ${number(hit.data[1], 1)} %`), `cosine about ${number(hits[0].data[0])}`);
    options.series = [{
      name: "random pairs", type: "line", data: points(one.shares, 1), symbol: "none", smooth: 0.25, lineStyle: { color: fill, width: 2 },
      itemStyle: { color: fill }, areaStyle: { color: fill, opacity: 0.22 },
      markLine: { silent: true, symbol: "none", data: [mark(one.similar, "dashed", "1 %:", 18), mark(one.very, "dotted", "0.1 %:", 4)] },
    }];
    if (one.labelled) options.series.push({
      name: "found alike by people", type: "line", data: points(one.labelled, wider), symbol: "none", smooth: 0.25,
      lineStyle: { color: color("muted"), width: 2 }, itemStyle: { color: color("muted") },
    });
    place(`similar-${side}`, options);
  }

  function drawLexical(side) {
    const { edits, first, second, near } = data.lexical, values = data.lexical[side];
    const low = Math.min(...data.lexical.before, ...data.lexical.after);
    // whole numbers hide each other: move them sideways, always the same way
    const points = edits.map((edit, i) => [edit + 0.6 * (((i * 0.6180339887) % 1) - 0.5), values[i], i]);
    const options = base();
    options.grid = { left: 46, right: 20, top: 16, bottom: 44 };
    options.xAxis = axis("words to change", { type: "value", min: -0.5, splitLine: { show: false }, minInterval: 1,
      axisLabel: { color: color("muted"), fontSize: 11, formatter: (x) => (x < 0 ? "" : x) } });
    options.yAxis = axis("cosine", { type: "value", min: Math.floor(low * 5) / 5, max: 1, nameGap: 32 });
    options.tooltip.trigger = "item";
    options.tooltip.formatter = (hit) => {
      const i = hit.data[2];
      return tip([first[i], second[i]], `cosine ${number(values[i])}, ${edits[i]} words to change`);
    };
    options.series = [[color("muted"), (edit) => edit > near, 0.45], [color(side), (edit) => edit <= near, 0.7]].map(([fill, chosen, opacity]) => ({
      type: "scatter", symbolSize: 5, data: points.filter(([, , i]) => chosen(edits[i])), itemStyle: { color: fill, opacity }, emphasis: { disabled: true },
    }));
    place(`lexical-${side}`, options);
  }

  function drawSpectrum() {
    const options = base();
    options.grid = { left: 50, right: 20, top: 14, bottom: 44 };
    options.xAxis = axis("principal axis, widest first", { type: "value", min: 1, splitLine: { show: false },
      axisLabel: { color: color("muted"), fontSize: 11, showMaxLabel: false },
      max: Math.max(...["before", "after", "noise"].map((name) => data.spectrum[name].at(-1)[0])) });
    options.yAxis = axis("relative deviation", { type: "log", nameGap: 34 });
    options.tooltip.trigger = "axis";
    options.tooltip.formatter = (hits) => tip(hits.map((hit) => `${hit.seriesName}: ${number(hit.data[1])}`), `axis ${hits[0].data[0]}`);
    options.series = [["noise", "muted", "dotted"], ["before", "before", "solid"], ["after", "after", "solid"]].map(([name, ink, type]) => ({
      name: name === "noise" ? "Gaussian noise" : name, type: "line", symbol: "none", data: data.spectrum[name],
      lineStyle: { color: color(ink), width: 2, type }, itemStyle: { color: color(ink) },
    }));
    place("spectrum-both", options);
  }

  // ---- the page ---------------------------------------------------------------------------------------------------

  function place(id, options) {
    charts[id] ??= echarts.init(element(id), null, { renderer: "canvas" });
    charts[id].setOption(options, { notMerge: true });
  }

  function draw() {
    for (const side of SIDES) {
      drawMap("sentences", side);
      if (data.words) drawMap("words", side);
      drawCosines(side);
      if (data.lexical) drawLexical(side);
    }
    drawSpectrum();
  }

  function setTheme(name) {
    root.dataset.theme = name;
    root.style.setProperty("--ramp", `linear-gradient(90deg, ${Array.from({ length: LEVELS }, (_, level) => shade(level)).join(",")})`);
    document.querySelector("#theme .word").textContent = name === "dark" ? "Light" : "Dark";
    draw();
  }

  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  const current = () => chosen ?? (system.matches ? "dark" : "light");
  element("theme").addEventListener("click", () => { chosen = isDark() ? "light" : "dark"; setTheme(chosen); });
  system.addEventListener("change", () => setTheme(current()));
  window.addEventListener("beforeprint", () => setTheme("light"));
  window.addEventListener("afterprint", () => setTheme(current()));
  let waiting = 0, width = document.body.clientWidth;
  new ResizeObserver(() => {
    if (document.body.clientWidth === width) return; // only its height changed: a table was opened
    width = document.body.clientWidth;
    clearTimeout(waiting);
    waiting = setTimeout(() => { for (const chart of Object.values(charts)) chart.resize(); draw(); }, 120);
  }).observe(document.body);
  for (const input of document.querySelectorAll("[data-search]")) {
    let typing = 0;
    input.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(() => onSearch(input), 120); });
  }
  for (const button of document.querySelectorAll("[data-zoom]")) button.addEventListener("click", () => onZoom(button));
  setTheme(current());
})();

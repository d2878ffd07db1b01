// The service's page. Texts reach it only as textContent: nothing in them is ever run.
"use strict";
(() => {
  const element = (id) => document.getElementById(id);
  const number = (value, digits = 2) => value.toFixed(digits).replace("-", "−");
  const plural = (count, one, many) => `${count.toLocaleString("en-US")} ${count === 1 ? one : many}`;
  let key = sessionStorage.getItem("bertflow-key") ?? "";

  function make(tag, name, ...content) {
    const made = document.createElement(tag);
    if (name) made.className = name;
    made.append(...content);
    return made;
  }

  // ---- asking ------------------------------------------------------------------------------------------------------

  async function ask(path, body) {
    const headers = key ? { Authorization: `Bearer ${key}` } : {};
    const options = body ? { method: "POST", headers: { ...headers, "Content-Type": "application/json" }, body: JSON.stringify(body) } : { headers };
    let response;
    try {
      response = await fetch(path, options);
    } catch {
      throw new Error("The service does not answer: is it still running?");
    }
    const answer = await response.json().catch(() => null);
    if (response.status === 401) {
      element("key-form").hidden = false;
      element("key").focus();
    }
    if (!response.ok || answer === null) throw new Error(answer?.error?.message ?? `The service answered with ${response.status}.`);
    return answer;
  }

  function complain(place, error) {
    const box = make("p", "error", error.message);
    box.setAttribute("role", "alert");
    place.replaceChildren(box);
  }

  /** Let a form show what `answer` makes of its fields; while it runs the button says so, and a second press does nothing. */
  function onSubmit(name, answer) {
    const form = element(`${name}-form`), place = element(`${name}-answer`), button = form.querySelector("button");
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (button.getAttribute("aria-disabled") === "true") return;
      button.setAttribute("aria-disabled", "true");
      try {
        place.replaceChildren(...(await answer()));
      } catch (error) {
        complain(place, error);
      } finally {
        button.removeAttribute("aria-disabled");
      }
    });
  }

  function bar(cosine) {
    const fill = make("i");
    fill.style.width = `${Math.max(0, Math.min(1, cosine)) * 100}%`;
    const track = make("span", "track", fill);
    track.setAttribute("aria-hidden", "true");
    return make("span", "cosine", make("span", "", number(cosine)), track);
  }

  // ---- what the three forms show -----------------------------------------------------------------------------------

  onSubmit("search", async () => {
    const answer = await ask("v1/search", { query: element("query").value, index: element("index").value, k: 10 });
    const hits = answer.data[0].hits.map((hit) => {
      const text = make("span", "", hit.text);
      if (hit.copies > 1) text.append(make("span", "note", ` (${hit.copies} times)`));
      return make("li", "hit", bar(hit.cosine), text);
    });
    return [make("p", "note", `${plural(hits.length, "text", "texts")}, the nearest first; the figure is the cosine.`), make("ol", "", ...hits)];
  });

  /** A text whose words are underlined by how much they add to the cosine. */
  function explained(text, words, most) {
    const box = make("p", "words");
    let end = 0;
    const characters = Array.from(text); // as Python counts them
    for (const word of words) {
      box.append(characters.slice(end, word.start).join(""));
      const mark = make("mark", word.effect >= 0 ? "more" : "less", characters.slice(word.start, word.end).join(""));
      mark.style.setProperty("--share", `${Math.round((100 * Math.abs(word.effect)) / most)}%`);
      mark.title = `${word.effect >= 0 ? "+" : "−"}${Math.abs(word.effect).toFixed(3)}`;
      box.append(mark);
      end = word.end;
    }
    box.append(characters.slice(end).join(""));
    return box;
  }

  /** 3.1, 240 000, 3.1 million, 10^14: two digits are enough. */
  function readable(value) {
    const rounded = Number(value.toPrecision(2));
    if (rounded >= 1e12) return `10^${Math.floor(Math.log10(rounded))}`;
    const [size, name] = [[1e9, " billion"], [1e6, " million"], [1, ""]].find(([from]) => rounded >= from || from === 1);
    return `${(rounded / size).toLocaleString("en-US").replaceAll(",", " ")}${name}`;
  }

  function strongest(words, text) {
    const characters = Array.from(text);
    const best = [...words].sort((a, b) => b.effect - a.effect).filter((word) => word.effect > 0.005).slice(0, 3);
    return best.map((word) => `“${characters.slice(word.start, word.end).join("")}” (+${word.effect.toFixed(2)})`).join(", ");
  }

  onSubmit("compare", async () => {
    const [text, other] = [element("text").value, element("other").value];
    const answer = await ask("v1/compare", { text, other, model: element("model").value });
    const most = Math.max(1e-9, ...[...answer.text, ...answer.other].map((word) => Math.abs(word.effect)));
    const best = [strongest(answer.text, text), strongest(answer.other, other)].filter(Boolean).join("; ");
    const cosine = make("p", "large", number(answer.cosine));
    cosine.append(make("span", "note", "  cosine"));
    const rare = answer.unrelated ? `1 in ${readable(answer.unrelated.one_in)} pairs of unrelated texts is as near.` : "";
    const why = best ? `They are alike most by ${best}.` : "No single word makes them alike.";
    return [
      cosine, ...(rare ? [make("p", "", rare)] : []), make("p", "", why), explained(text, answer.text, most), explained(other, answer.other, most),
      make("p", "note", "A solid line: with this word the texts are more alike than without; dashed: less. The stronger, the more."),
    ];
  });

  onSubmit("duplicates", async () => {
    const lines = element("list").value.split("\n").map((line, i) => [i + 1, line.trim()]).filter(([, text]) => text);
    const texts = lines.map(([, text]) => text);
    if (texts.length < 2) throw new Error(`${plural(texts.length, "text", "texts")} came; duplicates need two or more, one a line.`);
    const cut = element("cut").value ? { expect_false: Number(element("cut").value) } : { threshold: Number(element("threshold").value) };
    const answer = await ask("v1/duplicates", { texts, model: element("model").value, ...cut });
    const groups = answer.groups.map((group) =>
      make("ul", "group", ...group.rows.map((row) => make("li", "", make("span", "line", `${lines[row][0]} `), texts[row]))));
    const left = answer.kept.length, said = `${plural(texts.length, "text", "texts")}, ${plural(groups.length, "group", "groups")} of duplicates`;
    const from = { "these texts": "as the list itself tells", "texts of the service": "as the service’s texts tell", "default": "as nothing tells how near unrelated texts get: paste 100 or more, or choose", "request": "as you chose" };
    const cutoff = make("p", "note", `Cut-off: a cosine of ${number(answer.threshold)}, ${from[answer.threshold_from]}.`);
    const near = answer.borderline.map((pair) => make("li", "hit", bar(pair.cosine), make("span", "", texts[pair.first], make("br"), texts[pair.second])));
    const borderline = near.length ? [make("details", "", make("summary", "", `${plural(near.length, "pair", "pairs")} near the cut-off`), make("ul", "", ...near))] : [];
    return [make("p", "", groups.length ? `${said}; ${plural(left, "text is", "texts are")} left if each group keeps one.` : `${said}.`), cutoff, ...groups, ...borderline];
  });

  element("cut").addEventListener("change", (event) => { element("threshold-part").hidden = event.target.value !== ""; });
  element("threshold").addEventListener("input", (event) => { element("threshold-value").value = Number(event.target.value).toFixed(2); });

  // ---- what the service offers -------------------------------------------------------------------------------------

  function fill(id, names) {
    element(id).replaceChildren(...names.map((name) => new Option(name, name)));
  }

  async function load() {
    try {
      const [models, indexes] = await Promise.all([ask("v1/models"), ask("v1/indexes")]);
      fill("model", models.data.map((model) => model.id));
      fill("index", indexes.data.map((index) => index.id));
      element("offer").textContent = [
        ...models.data.map((model) => `${model.id}: ${model.dim} dimensions`),
        ...indexes.data.map((index) => `${index.id}: ${plural(index.texts, "text", "texts")}`),
      ].join(" · ");
      element("no-index").hidden = indexes.data.length > 0;
      element("search-form").hidden = indexes.data.length === 0;
      for (const id of ["compare", "duplicates", "model-bar"]) element(id).hidden = models.data.length === 0;
      element("model-bar").hidden = models.data.length < 2;
      element("key-form").hidden = true;
      return true;
    } catch (error) {
      element("offer").textContent = error.message;
      return false;
    }
  }

  element("key-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    key = element("key").value.trim();
    if (await load()) {
      sessionStorage.setItem("bertflow-key", key);
      element("query").focus();
    }
  });

  // ---- light and dark ----------------------------------------------------------------------------------------------

  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = localStorage.getItem("bertflow-theme");
  function setTheme() {
    const name = chosen ?? (system.matches ? "dark" : "light");
    document.documentElement.dataset.theme = name;
    document.querySelector("#theme .word").textContent = name === "dark" ? "Light" : "Dark";
  }
  element("theme").addEventListener("click", () => {
    chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    localStorage.setItem("bertflow-theme", chosen);
    setTheme();
  });
  system.addEventListener("change", setTheme);

  setTheme();
  load();
})();

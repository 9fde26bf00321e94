"use strict";
// The grids of heads: controls to choose a model and a score, and the facts of one head.
// Without this script a grid shows its first model.
(() => {
  // Cividis: even in lightness, and the same for readers who do not tell red from green.
  const COLOURS = [[0, 34, 78], [58, 81, 109], [112, 117, 113], [165, 156, 107], [220, 200, 80], [253, 234, 69]];

  const colourAt = (share) => {
    const place = Math.min(Math.max(share, 0), 1) * (COLOURS.length - 1);
    const low = Math.min(Math.floor(place), COLOURS.length - 2);
    return COLOURS[low].map((part, i) => Math.round(part + (place - low) * (COLOURS[low + 1][i] - part)));
  };
  const isDark = ([red, green, blue]) => 0.299 * red + 0.587 * green + 0.114 * blue < 140;
  const number = (value) => Number(value.toPrecision(3)).toString().replace("-", "\u2212");
  const at = (values, cell) => (values[cell.component] || [])[cell.layer]?.[cell.head] ?? null;
  const all = (values) => Object.values(values).flat(2).filter((value) => value !== null);

  const choice = (label, options, parent) => {
    const box = document.createElement("label");
    box.append(label + " ");
    const select = document.createElement("select");
    for (const [value, text] of options) select.add(new Option(text, value));
    box.append(select);
    parent.append(box);
    return select;
  };

  const start = (grid) => {
    const data = JSON.parse(grid.querySelector("script").textContent);
    const cells = [...grid.querySelectorAll("td")].map((element) => ({
      element,
      component: element.closest("table").dataset.component,
      layer: Number(element.dataset.layer),
      head: Number(element.dataset.head),
    }));
    const controls = document.createElement("div");
    controls.className = "controls";
    const facts = document.createElement("p");
    facts.className = "facts";
    facts.setAttribute("aria-live", "polite");
    const hint = "Point at a head, or move to it with the arrow keys, to read its facts.";
    facts.textContent = hint;
    grid.prepend(controls);
    grid.querySelector(".grid-panels").after(facts);

    const rows = [...new Set(data.models.map((model) => model.row))];
    const rowChoice = choice("Model", rows.map((row, i) => [i, row]), controls);
    const seedChoice = choice("Seed", [], controls);
    const scores = data.scores.map((score, i) => [i, score.name]);
    const scoreChoice = scores.length ? choice("Score", [["", "none"], ...scores], controls) : null;
    const ablations = data.scores.filter((score) => score.name.split(",")[0] === "ablation");

    const ofRow = () => data.models.filter((model) => model.row === rows[Number(rowChoice.value)]);
    const chosen = () => ofRow().filter((model) => seedChoice.value === "all" || String(model.seed) === seedChoice.value);
    const score = () => (scoreChoice && scoreChoice.value !== "" ? data.scores[Number(scoreChoice.value)] : null);
    const keeps = (model, cell) => model.kept[cell.component][cell.layer].includes(cell.head);

    const listSeeds = (wanted) => {
      const models = ofRow();
      seedChoice.replaceChildren();
      for (const model of models) seedChoice.add(new Option(model.seed, model.seed));
      if (models.length > 1) seedChoice.add(new Option("all", "all"));
      if (models.some((model) => String(model.seed) === wanted) || (wanted === "all" && models.length > 1)) seedChoice.value = wanted;
    };

    const draw = () => {
      const models = chosen();
      const current = score();
      const values = current ? all(current.values) : [];
      const low = Math.min(...values);
      const span = Math.max(...values) - low || 1;
      for (const cell of cells) {
        const count = models.filter((model) => keeps(model, cell)).length;
        const state = count === models.length ? "kept" : count ? "some" : "pruned";
        const value = current ? at(current.values, cell) : null;
        cell.element.className = state + (value === null ? "" : " scored");
        cell.element.style.backgroundColor = "";
        cell.element.style.color = "";
        if (value !== null) {
          const colour = colourAt((value - low) / span);
          cell.element.style.backgroundColor = `rgb(${colour})`;
          cell.element.style.color = isDark(colour) ? "#ffffff" : "#000000";
        }
        const text = state === "some" ? `${count}/${models.length}` : state;
        cell.element.replaceChildren();
        const words = document.createElement("span");
        words.className = state === "some" ? "" : "unseen";
        words.textContent = text;
        cell.element.append(words);
      }
      const seeds = models.length > 1 ? `all ${models.length} seeds` : `seed ${models[0].seed}`;
      grid.querySelector("[data-model]").textContent =
        `${models[0].row}, ${seeds}${models.length === 1 && models[0].value ? `: ${models[0].value}` : ""}` +
        (current ? `. Colours: ${current.name}, from ${number(low)} (dark) to ${number(low + span)} (bright).` : "");
      if (last) tell(last);
    };

    const about = (each, cell) => {
      const value = at(each.values, cell);
      if (value === null) return `${each.name}: no value`;
      const values = all(each.values);
      const rank = 1 + values.filter((other) => other > value).length;
      const tests = [["p", at(each.p, cell)], ["after Holm\u2019s correction", at(each.holm, cell)]]
        .filter(([, p]) => p !== null).map(([name, p]) => `${name} ${p < 0.001 ? "< 0.001" : number(p)}`);
      return `${each.name} ${number(value)} (${rank} of ${values.length} from the highest${tests.length ? "; " + tests.join(", ") : ""})`;
    };

    let last = null;
    const tell = (cell) => {
      last = cell;
      const models = chosen();
      const keeping = models.filter((model) => keeps(model, cell));
      const state = models.length > 1 ? `kept with ${keeping.length} of ${models.length} seeds` : keeping.length ? "kept" : "pruned";
      const others = ofRow();
      const parts = [`${cell.component}, layer ${cell.layer}, head ${cell.head}: ${state}`];
      if (models.length === 1 && others.length > 1) parts.push(`kept with ${others.filter((model) => keeps(model, cell)).length} of ${others.length} seeds of ${models[0].row}`);
      const current = score();
      if (current) parts.push(about(current, cell));
      for (const ablation of ablations) if (ablation !== current) parts.push(about(ablation, cell));
      facts.textContent = parts.join("; ") + ".";
    };

    const move = (from, rowStep, columnStep) => {
      const row = from.element.parentElement.parentElement.rows[from.element.parentElement.sectionRowIndex + rowStep];
      const next = row && row.cells[from.element.cellIndex + columnStep];
      if (next && next.tagName === "TD") next.focus();
    };
    const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    const tables = [...grid.querySelectorAll("table.heads")];
    for (const table of tables) {
      table.setAttribute("role", "grid");
      const own = cells.filter((cell) => cell.element.closest("table") === table);
      own.forEach((cell, i) => {
        // One stop of the tab key for each grid; arrow keys move inside it.
        cell.element.tabIndex = i ? -1 : 0;
        cell.element.addEventListener("mouseenter", () => tell(cell));
        cell.element.addEventListener("click", () => cell.element.focus());
        cell.element.addEventListener("focus", () => {
          for (const other of own) other.element.tabIndex = other === cell ? 0 : -1;
          tell(cell);
        });
        cell.element.addEventListener("keydown", (event) => {
          if (!(event.key in steps)) return;
          event.preventDefault();
          move(cell, ...steps[event.key]);
        });
      });
    }
    rowChoice.addEventListener("change", () => { listSeeds(seedChoice.value); draw(); });
    seedChoice.addEventListener("change", draw);
    if (scoreChoice) scoreChoice.addEventListener("change", draw);
    const first = data.models[data.first];
    rowChoice.value = String(rows.indexOf(first.row));
    listSeeds(String(first.seed));
    draw();
  };

  document.querySelectorAll("[data-grid]").forEach(start);
  // What is folded is printed too.
  window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => { each.open = true; }));
})();

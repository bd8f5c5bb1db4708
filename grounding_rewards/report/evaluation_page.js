"use strict";
(() => {
  /* Unfold every table for printing. */
  const folded = () => document.querySelectorAll("details:not([open])");
  let opened = [];
  addEventListener("beforeprint", () => (opened = [...folded()]).forEach((one) => (one.open = true)));
  addEventListener("afterprint", () => opened.forEach((one) => (one.open = false)));

  const block = document.getElementById("Data");
  if (!block) return;
  const data = JSON.parse(block.textContent);
  const root = document.getElementById("Films");
  const ROWS = 50;
  const UNKNOWN = "–";

  /* What a model wrote only ever becomes text: nodes are created one by one, and nothing is parsed as HTML. */
  const SVG = "http://www.w3.org/2000/svg";
  const fill = (node, attributes, children) => {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return node;
  };
  const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
  const draw = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

  /* Write out characters that are invisible or change the direction of the text. */
  const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
  const visible = (text) =>
    String(text).replace(HIDDEN, (character) => "⟨U+" + character.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0") + "⟩");
  const own = (text) => el("bdi", null, visible(text));
  const number = (value, digits = 2) => (value === null || value === undefined ? UNKNOWN : value.toFixed(digits));
  const count = (n, one, many) => n.toLocaleString("en") + " " + (n === 1 ? one : many);

  const films = data.films.map((film, k) => {
    const labels = [...film.gt, ...film.pred].map((box) => box[4]).filter((label) => label);
    const overlap = film.gt.length ? film.gt.reduce((sum, box) => sum + box[5], 0) / film.gt.length : null;
    const words = [film.id, film.patient || "", film.reason, film.text, ...labels, ...film.tags];
    return { ...film, place: data.places[k], k, labels: new Set(labels), overlap, words: words.join("\n").toLowerCase() };
  });
  const byPlace = new Map(films.map((film) => [film.place, film]));
  const findings = (film) => [...new Set(film.gt.map((box) => box[4]).filter((label) => label))].join(", ");

  /* Films that pass the filter, in the chosen order */
  const state = { search: "", label: "", tag: "", reward: data.rewards.indexOf(data.reward), low: 0, high: 1, sort: "place", down: false, page: 0 };
  const keys = {
    place: (film) => film.place,
    id: (film) => film.id,
    findings: (film) => findings(film) || "~",
    gt: (film) => film.n[0],
    pred: (film) => film.n[1],
    overlap: (film) => film.overlap,
    status: (film) => film.tags[0],
    ...Object.fromEntries(data.rewards.map((name, r) => ["reward" + r, (film) => film.rewards[r]])),
  };
  const natural = new Intl.Collator("en", { numeric: true });
  const compare = (a, b) => (typeof a === "string" ? natural.compare(a, b) : a - b);
  const passes = (film) => {
    const reward = film.rewards[state.reward];
    const all = state.low <= 0 && state.high >= 1;
    return (
      (!state.label || film.labels.has(state.label)) &&
      (!state.tag || film.tags.includes(state.tag)) &&
      (all || (reward !== null && reward !== undefined && reward >= state.low && reward <= state.high)) &&
      state.search.toLowerCase().split(/\s+/).every((word) => film.words.includes(word))
    );
  };
  const chosen = () => {
    const key = keys[state.sort];
    return films.filter(passes).sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      /* Films without a value come last in either direction. */
      if (x === null || y === null) return (x === null) - (y === null) || a.place - b.place;
      return (state.down ? -1 : 1) * compare(x, y) || a.place - b.place;
    });
  };
  const sortedBy = (sort, down) => (list) => {
    const key = keys[sort];
    return [...list].sort((a, b) => (down ? -1 : 1) * compare(key(a) ?? -1, key(b) ?? -1));
  };

  /* A film with its boxes */
  const drawable = (box) => box.slice(0, 4).every((side) => side !== null) && box[0] < box[2] && box[1] < box[3];
  const rectangle = (box, kind) => {
    const shape = { x: box[0], y: box[1], width: box[2] - box[0], height: box[3] - box[1] };
    return [draw("rect", { class: "halo", ...shape }), draw("rect", { class: kind, ...shape })];
  };
  /* The caption of a box, above predicted and below reference boxes, kept inside the film. */
  const ruler = document.createElement("canvas").getContext("2d");
  ruler.font = "650 100px " + getComputedStyle(document.body).fontFamily;
  const caption = (box, kind, text, [width, height], scale) => {
    const size = Math.max(width, height) * scale;
    const above = box[1] > 1.4 * size ? box[1] - 0.35 * size : box[1] + 1.1 * size;
    const below = box[3] < height - 1.4 * size ? box[3] + 1.05 * size : box[3] - 0.4 * size;
    const y = kind === "predicted" ? above : below;
    const shown = visible(text);
    const length = (ruler.measureText(shown).width / 100 + 0.15) * size;
    const x = Math.max(Math.min(box[0], width - length), 0.15 * size);
    const at = { x, y: Math.min(Math.max(y, size), height - 0.2 * size), "font-size": size, "stroke-width": size * 0.22 };
    return draw("text", { class: kind, ...at }, shown);
  };
  const short = (text) => (text.length > 26 ? text.slice(0, 25) + "…" : text);
  /* With more boxes than these a card shows only IoUs, or no captions. */
  const CROWDED = 6;
  const PACKED = 16;
  const picture = (film, isLarge) => {
    const uri = data.pictures[film.place];
    const [width, height] = film.size;
    const scale = isLarge ? 0.022 : 0.045;
    const boxes = film.gt.length + film.pred.length;
    const crowded = !isLarge && boxes > CROWDED;
    const packed = !isLarge && boxes > PACKED;
    const layer = (boxes, kind, text) =>
      boxes.filter(drawable).map((box) => draw("g", { class: "is-" + kind }, rectangle(box, kind), text(box) && caption(box, kind, text(box), film.size, scale)));
    const counts = count(film.n[0], "reference box", "reference boxes") + ", " + count(film.n[1], "predicted box", "predicted boxes");
    return draw(
      "svg",
      { viewBox: "0 0 " + width + " " + height, role: "img", "aria-label": "Film " + visible(film.id) + ", " + counts },
      uri ? draw("image", { href: uri, width, height, preserveAspectRatio: "none" }) : null,
      layer(film.ignore, "ignored", () => null),
      layer(film.gt, "reference", (box) => (crowded ? null : short(box[4] || "reference"))),
      layer(film.pred, "predicted", (box) => (packed ? null : (crowded ? "" : short(box[4] || "box") + " ") + number(box[5]))),
    );
  };
  const meter = (value) => {
    const bar = el("span", { class: "meter", "aria-hidden": "true" }, el("span"));
    bar.firstChild.style.width = 100 * Math.min(Math.max(value || 0, 0), 1) + "%";
    return bar;
  };
  const answer = (film) => {
    const words = el("pre", { dir: "auto" }, visible(film.text) || "(nothing)");
    return film.cut ? [words, el("p", { class: "soft" }, "… " + count(film.cut, "more character", "more characters"))] : [words];
  };
  const boxLines = (film) => [
    ...film.gt.map((box) => ["reference", box]),
    ...film.pred.map((box) => ["predicted", box]),
    ...film.ignore.map((box) => ["ignored", box]),
  ];

  /* Filters */
  const change = (values) => {
    Object.assign(state, { page: 0 }, values);
    show();
  };
  const options = (pairs) => pairs.map(([value, text]) => el("option", { value }, visible(text)));
  const field = (text, input) => el("label", null, el("span", null, text), input);
  const occurring = (lists) => {
    const tally = new Map();
    for (const list of lists) for (const one of new Set(list)) tally.set(one, (tally.get(one) || 0) + 1);
    return [...tally].sort((a, b) => b[1] - a[1] || natural.compare(a[0], b[0])).map(([one, n]) => [one, one + " (" + n.toLocaleString("en") + ")"]);
  };
  const statuses = new Set(["boxes", "empty", "truncated", "unparseable"]);
  const tags = occurring(films.map((film) => film.tags));
  const group = (title, pairs) => (pairs.length ? el("optgroup", { label: title }, options(pairs)) : null);
  const search = el("input", { type: "search", id: "Search", placeholder: "film, patient, words of the answer", oninput: () => change({ search: search.value.trim() }) });
  const label = el("select", { id: "Label", onchange: () => change({ label: label.value }) }, options([["", "any"], ...occurring(films.map((film) => film.labels))]));
  const tag = el(
    "select",
    { id: "Answer", onchange: () => change({ tag: tag.value }) },
    options([["", "any"]]),
    group("status", tags.filter(([one]) => statuses.has(one))),
    group("reason", tags.filter(([one]) => !statuses.has(one))),
  );
  const reward = el("select", { id: "Reward", onchange: () => rank(Number(reward.value)) }, data.rewards.map((name, r) => el("option", { value: r, selected: r === state.reward }, visible(name))));
  const rank = (r) => {
    cards.clear();
    change({ reward: r, sort: state.sort.startsWith("reward") ? "reward" + r : state.sort });
  };
  const bound = (id, text, value) => {
    const input = el("input", { type: "number", id, min: 0, max: 1, step: 0.05, value, "aria-label": text });
    input.addEventListener("input", () => change({ low: Number(low.value || 0), high: low && high.value === "" ? 1 : Number(high.value) }));
    return input;
  };
  const low = bound("Low", "reward from", 0);
  const high = bound("High", "reward to", 1);
  const SORTS = [["place", "dataset"], ["reward+", "reward, lowest first"], ["reward-", "reward, highest first"], ["overlap+", "mean IoU, lowest first"], ["overlap-", "mean IoU, highest first"], ["id", "name"]];
  const sort = el("select", { id: "Sort", onchange: () => reorder(sort.value) }, options(SORTS));
  const reorder = (value) => {
    const name = value.replace(/[+-]$/, "");
    change({ sort: name === "reward" ? "reward" + state.reward : name, down: value.endsWith("-") });
  };
  const reset = el("button", { type: "button", id: "Reset", onclick: () => {
    for (const input of [search, label, tag]) input.value = "";
    low.value = 0;
    high.value = 1;
    change({ search: "", label: "", tag: "", low: 0, high: 1, sort: "place", down: false });
  } }, "Reset");
  const tally = el("p", { id: "Tally", role: "status", "aria-live": "polite" });
  const filters = el(
    "div",
    { class: "filters", role: "search", "aria-label": "Filter films" },
    field("search", search),
    field("label", label),
    field("answer", tag),
    field("reward", reward),
    el("div", { class: "range", role: "group", "aria-label": "Range of the reward" }, el("span", null, "from, to"), el("div", null, low, high)),
    field("order", sort),
    reset,
    tally,
  );

  /* Gallery */
  const cards = new Map();
  const card = (film) => cards.get(film) || cards.set(film, makeCard(film)).get(film);
  const makeCard = (film) => {
    const open = el("button", { type: "button", class: "open", "aria-label": "Enlarge film " + visible(film.id), onclick: () => enlarge(film, galleryOrder(), open) }, picture(film, false));
    const value = film.rewards[state.reward];
    return el(
      "article",
      { "data-place": film.place, class: film.n[0] ? null : "normal" },
      open,
      el("header", null, own(film.id), el("b", null, data.rewards[state.reward] + " " + number(value))),
      meter(value),
      el("p", { class: "reason" }, visible(film.reason)),
      answer(film),
    );
  };
  const gallery = el("div", { id: "Gallery" });
  const galleryOrder = () => [...gallery.querySelectorAll("article")].map((node) => byPlace.get(Number(node.dataset.place)));
  const showGallery = () => {
    const parts = data.groups.map((one) => {
      const inside = one.films.map((place) => byPlace.get(place)).filter(passes);
      const ordered = state.sort === "place" ? inside : sortedBy(state.sort, state.down)(inside);
      if (!ordered.length) return null;
      const total = ordered.length < one.films.length ? ordered.length + " of " + one.films.length : String(one.films.length);
      return el("section", { class: "group", "aria-label": one.title }, el("h3", null, one.title + " ", el("small", null, total)), el("p", { class: "note" }, visible(one.note)), el("div", { class: "films" }, ordered.map(card)));
    });
    gallery.replaceChildren(...parts.filter(Boolean));
  };

  /* Table of all films */
  const columns = [
    ["id", "film"], ["findings", "reference"], ["gt", "reference boxes"], ["pred", "predicted boxes"], ["overlap", "mean IoU"], ["status", "answer"],
    ...data.rewards.map((name, r) => ["reward" + r, name]),
  ];
  const body = el("tbody");
  const heads = columns.map(([key, title]) => el("th", { scope: "col" }, el("button", { type: "button", onclick: () => change({ sort: key, down: state.sort === key ? !state.down : key.startsWith("reward") }) }, visible(title))));
  const where = el("span", { id: "Where" });
  const turn = (step) => () => {
    state.page += step;
    showTable(chosen());
  };
  const previous = el("button", { type: "button", id: "Previous", onclick: turn(-1) }, "Previous");
  const next = el("button", { type: "button", id: "Next", onclick: turn(1) }, "Next");
  const table = el(
    "div",
    { class: "panel", tabindex: 0, role: "region", "aria-label": "Rewards of every film" },
    el("table", { class: "every" }, el("caption", { class: "hidden" }, "Rewards of every film"), el("thead", null, el("tr", null, heads, el("th", { scope: "col" }, "reason"))), body),
  );
  const pages = el("nav", { class: "pages", "aria-label": "Pages of the table" }, previous, where, next);
  const shade = (value) => {
    const cell = el("td", { class: "shade" }, number(value));
    cell.style.setProperty("--share", String(value || 0));
    return cell;
  };
  const line = (film, list) => {
    const open = el("button", { type: "button", class: "link", onclick: () => enlarge(film, list, open) }, own(film.id));
    return el(
      "tr",
      { "data-place": film.place },
      el("th", { scope: "row" }, open),
      el("td", { class: "words" }, own(findings(film) || (film.n[0] ? UNKNOWN : "normal"))),
      el("td", null, film.n[0]),
      el("td", null, film.n[1]),
      el("td", null, number(film.overlap)),
      el("td", { class: "words" }, film.tags[0]),
      film.rewards.map(shade),
      el("td", { class: "words" }, own(film.reason)),
    );
  };
  const showTable = (list) => {
    const last = Math.max(0, Math.ceil(list.length / ROWS) - 1);
    state.page = Math.min(Math.max(state.page, 0), last);
    const first = state.page * ROWS;
    body.replaceChildren(...list.slice(first, first + ROWS).map((film) => line(film, list)));
    where.textContent = list.length ? (first + 1).toLocaleString("en") + "–" + Math.min(first + ROWS, list.length).toLocaleString("en") + " of " + list.length.toLocaleString("en") : "no film";
    previous.disabled = state.page === 0;
    next.disabled = state.page === last;
    heads.forEach((head, c) => {
      if (columns[c][0] === state.sort) head.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
  };
  const show = () => {
    const list = chosen();
    showGallery();
    showTable(list);
    const name = state.sort === "reward" + state.reward ? "reward" : state.sort;
    sort.value = ["reward", "overlap"].includes(name) ? name + (state.down ? "-" : "+") : state.down ? "" : name;
    const drawn = gallery.querySelectorAll("article").length;
    tally.textContent = count(list.length, "film", "films") + " of " + films.length.toLocaleString("en") + ", " + drawn + " in the gallery";
  };

  /* Enlarged view */
  const layers = { reference: true, predicted: true };
  const toggle = (kind) => {
    layers[kind] = !layers[kind];
    drawLayers();
  };
  const switches = ["reference", "predicted"].map((kind) => el("button", { type: "button", class: "k-" + kind, "aria-keyshortcuts": kind[0], onclick: () => toggle(kind) }, kind));
  const content = el("div", { class: "large" });
  const title = el("h3", { id: "Title", tabindex: -1 });
  const place = el("span", { class: "soft" });
  const view = { list: [], at: 0, from: null };
  const step = (by) => {
    const at = view.at + by;
    if (at >= 0 && at < view.list.length) showLarge(at);
  };
  const back = el("button", { type: "button", onclick: () => step(-1) }, "Previous");
  const forth = el("button", { type: "button", onclick: () => step(1) }, "Next");
  const dialog = el(
    "dialog",
    { id: "Large", "aria-labelledby": "Title" },
    el("header", null, title, place, switches, back, forth, el("button", { type: "button", id: "Close", onclick: () => dialog.close() }, "Close")),
    content,
  );
  const drawLayers = () =>
    switches.forEach((button, s) => {
      const kind = ["reference", "predicted"][s];
      button.setAttribute("aria-pressed", String(layers[kind]));
      dialog.classList.toggle("without-" + kind, !layers[kind]);
    });
  const showLarge = (at) => {
    view.at = at;
    const film = view.list[at];
    title.replaceChildren(own(film.id));
    place.textContent = (at + 1).toLocaleString("en") + " of " + view.list.length.toLocaleString("en");
    back.disabled = at === 0;
    forth.disabled = at === view.list.length - 1;
    const lines = boxLines(film);
    const hidden = film.n[0] + film.n[1] - film.gt.length - film.pred.length;
    const mean = film.sampled.length ? film.sampled.reduce((sum, one) => sum + one, 0) / film.sampled.length : null;
    content.replaceChildren(
      el("div", { class: "film" }, picture(film, true), data.pictures[film.place] ? null : el("p", { class: "soft" }, "No picture of this film is in the report.")),
      el(
        "div",
        { class: "words" },
        el("p", { class: "reason" }, visible(film.reason)),
        el("p", { class: "soft" }, own(film.tags.join(", ")), film.patient ? [" · patient ", own(film.patient)] : [], " · " + film.size.join(" × ") + " pixels"),
        el("dl", { class: "rewards" }, data.rewards.map((name, r) => el("div", null, el("dt", null, visible(name)), el("dd", null, number(film.rewards[r]), meter(film.rewards[r]))))),
        mean === null ? null : el("p", { class: "soft" }, count(film.sampled.length, "sampled answer", "sampled answers") + ": mean " + number(mean) + ", from " + number(Math.min(...film.sampled)) + " to " + number(Math.max(...film.sampled))),
        lines.length
          ? el(
              "table",
              null,
              el("thead", null, el("tr", null, ["box", "label", "IoU", "confidence", "x1, y1, x2, y2"].map((text) => el("th", { scope: "col" }, text)))),
              el("tbody", null, lines.map(([kind, box]) => el("tr", null, el("td", { class: "k-" + kind }, kind), el("td", null, own(box[4] || UNKNOWN)), el("td", null, kind === "ignored" ? UNKNOWN : number(box[5])), el("td", null, number(box[6])), el("td", null, box.slice(0, 4).map((side) => (side === null ? "?" : String(side))).join(", "))))),
            )
          : el("p", { class: "soft" }, "No boxes."),
        hidden > 0 ? el("p", { class: "soft" }, count(hidden, "more box", "more boxes")) : null,
        el("h4", null, "What the model wrote"),
        answer(film),
      ),
    );
    content.scrollTop = 0;
  };
  const enlarge = (film, list, from) => {
    Object.assign(view, { list, from });
    showLarge(list.indexOf(film));
    drawLayers();
    dialog.showModal();
    title.focus();
  };
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  /* Focus goes back to the film that was shown last, where it has a card. */
  dialog.addEventListener("close", () => {
    const film = view.list[view.at];
    const within = gallery.contains(view.from) ? gallery : body;
    const button = within.querySelector('[data-place="' + film.place + '"] button');
    (button || view.from).focus();
  });

  /* Keys */
  const move = (by) => {
    const buttons = [...gallery.querySelectorAll("button.open")];
    const at = buttons.indexOf(document.activeElement);
    const target = buttons[at < 0 ? (by > 0 ? 0 : buttons.length - 1) : at + by];
    if (target) {
      target.focus();
      target.closest("article").scrollIntoView({ block: "nearest" });
    }
  };
  const inGallery = { j: () => move(1), k: () => move(-1) };
  const arrows = { ArrowRight: () => move(1), ArrowLeft: () => move(-1) };
  const inDialog = { j: () => step(1), k: () => step(-1), ArrowRight: () => step(1), ArrowLeft: () => step(-1), r: () => toggle("reference"), p: () => toggle("predicted") };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
    const active = gallery.contains(document.activeElement) ? { ...inGallery, ...arrows } : inGallery;
    const act = (dialog.open ? inDialog : { ...active, "/": () => search.focus() })[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });

  root.append(
    el("div", { class: "legend" }, el("span", { class: "k-reference" }, "reference"), el("span", { class: "k-predicted" }, "predicted, with IoU"), el("span", { class: "k-ignored" }, "ignored region")),
    filters,
    el("p", { class: "note keys" }, "Keys: ", ["j", "k"].map((key) => el("kbd", null, key)), " next and previous film, ", el("kbd", null, "Enter"), " enlarge, ", el("kbd", null, "Esc"), " close, ", el("kbd", null, "r"), " and ", el("kbd", null, "p"), " hide reference and predicted boxes in the enlarged view, ", el("kbd", null, "/"), " search."),
    gallery,
    el("h3", { id: "Every" }, "Every film"),
    el("p", { class: "note" }, "All rewards of the same answers. A click on a heading sorts."),
    table,
    pages,
    dialog,
  );
  show();
})();

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
  const root = document.getElementById("Images");
  const ROWS = 50;
  const CARDS = 24;
  const UNKNOWN = "–";

  /* What a model wrote only ever becomes text: nodes are created one by one, and nothing is parsed as HTML. */
  const SVG = "http://www.w3.org/2000/svg";
  const fill = (node, attributes, children) => {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
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

  /* A box is [x1, y1, x2, y2, label, outcome, IoU]; a predicted one also has its confidence, and the label of the finding that it calls something else. */
  const [LABEL, OUTCOME, IOU, SCORE, OTHER] = [4, 5, 6, 7, 8];
  const images = data.images.map((image, k) => {
    const labels = [...image.gt, ...image.pred].map((box) => box[LABEL]).filter((label) => label);
    const words = [image.id, image.patient || "", image.view || "", image.summary, image.reason, image.text, ...labels, ...image.tags];
    const parts = image.rewards.map((value, r) => (value === null ? null : image.ceilings[r] > 0 ? Math.min(value / image.ceilings[r], 1) : 1));
    return { ...image, place: data.recorded[k], k, parts, labels: new Set(labels), words: words.join("\n").toLowerCase() };
  });
  const byPlace = new Map(images.map((image) => [image.place, image]));
  const findings = (image) => [...new Set(image.gt.map((box) => box[LABEL]).filter((label) => label))].join(", ");

  /* Images that pass the filter, in the chosen order */
  const START = { search: "", label: "", tag: "", low: 0, high: 1, pick: null, sort: "groups", down: false };
  const state = { ...START, reward: data.rewards.indexOf(data.reward), page: 0, cards: CARDS };
  const keys = {
    groups: (image) => image.place,
    place: (image) => image.place,
    part: (image) => image.parts[state.reward],
    id: (image) => image.id,
    findings: (image) => findings(image) || "~",
    gt: (image) => image.n[0],
    pred: (image) => image.n[1],
    overlap: (image) => image.overlap,
    status: (image) => image.tags[0],
    ...Object.fromEntries(data.rewards.map((name, r) => ["reward" + r, (image) => image.rewards[r]])),
  };
  const natural = new Intl.Collator("en", { numeric: true });
  const compare = (a, b) => (typeof a === "string" ? natural.compare(a, b) : a - b);
  const passes = (image) => {
    const reward = image.rewards[state.reward];
    const all = state.low <= 0 && state.high >= 1;
    return (
      (!state.pick || state.pick.places.has(image.place)) &&
      (!state.label || image.labels.has(state.label)) &&
      (!state.tag || image.tags.includes(state.tag)) &&
      (all || (reward !== null && reward !== undefined && reward >= state.low && reward <= state.high)) &&
      state.search.toLowerCase().split(/\s+/).every((word) => image.words.includes(word))
    );
  };
  const chosen = () => {
    const key = keys[state.sort];
    return images.filter(passes).sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      /* Images without a value come last in either direction. */
      if (x === null || y === null) return (x === null) - (y === null) || a.place - b.place;
      return (state.down ? -1 : 1) * compare(x, y) || a.place - b.place;
    });
  };
  /* An image with its boxes */
  const drawable = (box) => box.slice(0, 4).every((side) => side !== null) && box[0] < box[2] && box[1] < box[3];
  const rectangle = (box, kind) => {
    const shape = { x: box[0], y: box[1], width: box[2] - box[0], height: box[3] - box[1] };
    return [draw("rect", { class: "halo", ...shape }), draw("rect", { class: kind, ...shape })];
  };
  /* A box in the wrong place is crossed out, so that it is known without its colour. */
  const crossed = ([x1, y1, x2, y2]) => [draw("line", { x1, y1, x2, y2 }), draw("line", { x1, y1: y2, x2, y2: y1 })];
  const kindOf = (outcome) => "o-" + outcome.replace(/ /g, "-");
  const outlined = (box, side) => draw("g", { class: "is-" + side + " " + kindOf(box[OUTCOME]) }, rectangle(box, side), box[OUTCOME] === "wrong place" ? crossed(box) : null);

  /* Captions: of every predicted box, and of the findings that were missed. Each takes the first free place at its box. */
  const ruler = document.createElement("canvas").getContext("2d");
  ruler.font = "650 100px " + getComputedStyle(document.body).fontFamily;
  const short = (text) => (text.length > 26 ? text.slice(0, 25) + "…" : text);
  const caption = (box, side, terse, isNormal) => {
    const [label, outcome, iou] = [box[LABEL], box[OUTCOME], box[IOU]];
    const name = terse ? "" : short(label || (side === "reference" ? "finding" : "box")) + " ";
    if (side === "reference") return outcome === "missed" ? name + "missed" : null;
    if (outcome === "ignored") return null;
    if (outcome === "wrong place") return name + "✕" + (isNormal ? "" : " " + iou);
    const other = box[OTHER];
    if (other && !terse) return name + "≠ " + short(other) + " " + iou;
    return (outcome === "wrong label" ? name + "≠ " : name) + iou;
  };
  const apart = (a, b) => a.x + a.w <= b.x || b.x + b.w <= a.x || a.y + a.h <= b.y || b.y + b.h <= a.y;
  const free = (box, text, [width, height], wanted, taken) => {
    const length = ruler.measureText(text).width / 100 + 0.2;
    const size = Math.min(wanted, width / length);
    const [w, h] = [length * size, 1.2 * size];
    const [x1, y1, x2, y2] = box;
    const beside = [[x1, y1 - h], [x1, y2], [x2 - w, y1 - h], [x2 - w, y2], [x2, y1], [x1 - w, y1], [x2, y2 - h], [x1 - w, y2 - h], [x1, y1], [x1, y2 - h]];
    const further = [1, 2, 3].flatMap((n) => [[x1, y1 - h - n * h], [x1, y2 + n * h]]);
    const inside = ([x, y]) => ({ x: Math.max(0.1 * size, Math.min(x, width - w)), y: Math.max(0, Math.min(y, height - h)), w, h, size });
    return [...beside, ...further].map(inside).find((place) => taken.every((other) => apart(place, other)));
  };
  const written = (text, { x, y, size }, kind) =>
    draw("text", { class: kind, x: x + 0.1 * size, y: y + 0.95 * size, "font-size": size, "stroke-width": size * 0.22 }, text);
  const URGENCY = ["missed", "wrong label", "wrong place", "right"];
  const captions = (image, size, terse) => {
    const taken = [];
    const boxes = [...image.gt.map((box) => [box, "reference"]), ...image.pred.map((box) => [box, "predicted"])].filter(([box]) => drawable(box));
    boxes.sort(([a], [b]) => URGENCY.indexOf(a[OUTCOME]) - URGENCY.indexOf(b[OUTCOME]));
    return boxes.map(([box, side]) => {
      const text = caption(box, side, terse, !image.n[0]);
      const place = text && free(box, visible(text), image.size, size, taken);
      if (!place) return null;
      taken.push(place);
      return draw("g", { class: "is-" + side + " " + kindOf(box[OUTCOME]) }, written(visible(text), place, side));
    });
  };
  /* With more boxes than these a card shows only IoUs. */
  const CROWDED = 6;
  const picture = (image, isLarge) => {
    const uri = data.pictures[image.place];
    const [width, height] = image.size;
    const size = Math.max(width, height) * (isLarge ? 0.022 : 0.045);
    const counts = count(image.n[0], "reference box", "reference boxes") + ", " + count(image.n[1], "predicted box", "predicted boxes");
    return draw(
      "svg",
      { class: uri ? null : "bare", viewBox: "0 0 " + width + " " + height, role: "img", "aria-label": "Image " + visible(image.id) + ", " + counts + ": " + visible(image.summary) },
      uri ? draw("image", { href: uri, width, height, preserveAspectRatio: "none" }) : null,
      image.ignore.filter(drawable).map((box) => draw("g", { class: "is-region" }, rectangle(box, "region"))),
      image.gt.filter(drawable).map((box) => outlined(box, "reference")),
      image.pred.filter(drawable).map((box) => outlined(box, "predicted")),
      captions(image, size, !isLarge && image.gt.length + image.pred.length > CROWDED),
    );
  };
  const meter = (part) => {
    const bar = el("span", { class: "meter", "aria-hidden": "true" }, el("span"));
    bar.firstChild.style.width = 100 * Math.min(Math.max(part || 0, 0), 1) + "%";
    return bar;
  };
  /* On a normal image a rightly empty answer earns less than 1: what could be earned stands beside it. */
  const earned = (image, r) => number(image.rewards[r]) + (image.ceilings[r] < 1 ? " of " + number(image.ceilings[r]) : "");
  const answer = (image) =>
    el(
      "figure",
      { class: "quote" },
      el("figcaption", null, "The model wrote"),
      el("blockquote", { dir: "auto" }, el("pre", null, visible(image.text) || "(nothing)")),
      image.cut ? el("p", { class: "soft" }, "… " + count(image.cut, "more character", "more characters")) : null,
    );
  const boxLines = (image) => [
    ...image.gt.map((box) => ["reference", box]),
    ...image.pred.map((box) => ["predicted", box]),
    ...image.ignore.map((box) => ["region", box]),
  ];

  /* Filters */
  const change = (values) => {
    Object.assign(state, { page: 0, cards: CARDS }, values);
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
  const tags = occurring(images.map((image) => image.tags));
  const group = (title, pairs) => (pairs.length ? el("optgroup", { label: title }, options(pairs)) : null);
  const search = el("input", { type: "search", id: "Search", placeholder: "image, patient, words of the answer", oninput: () => change({ search: search.value.trim() }) });
  const label = el("select", { id: "Label", onchange: () => change({ label: label.value }) }, options([["", "any"], ...occurring(images.map((image) => image.labels))]));
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
  const SORTS = [["groups", "groups"], ["part+", "worst first"], ["reward+", "reward, lowest first"], ["reward-", "reward, highest first"], ["overlap+", "mean IoU, lowest first"], ["overlap-", "mean IoU, highest first"], ["place", "dataset"], ["id", "name"]];
  const sort = el("select", { id: "Sort", onchange: () => reorder(sort.value) }, options(SORTS));
  const reorder = (value) => {
    const name = value.replace(/[+-]$/, "");
    change({ sort: name === "reward" ? "reward" + state.reward : name, down: value.endsWith("-") });
  };
  const startAnew = (values) => {
    for (const input of [search, label, tag]) input.value = "";
    low.value = 0;
    high.value = 1;
    change({ ...START, ...values });
  };
  const reset = el("button", { type: "button", id: "Reset", onclick: () => startAnew({}) }, "Reset");
  /* What was clicked outside of the gallery; a click on it takes it away. */
  const picked = el("button", { type: "button", id: "Pick", onclick: () => change({ pick: null }) });
  const pick = (text, places) => {
    startAnew({ pick: { text, places: new Set(places) } });
    root.scrollIntoView();
  };
  const tally = el("p", { id: "Tally", role: "status", "aria-live": "polite" });
  const filters = el(
    "div",
    { class: "filters", role: "search", "aria-label": "Filter images" },
    field("search", search),
    field("label", label),
    field("answer", tag),
    field("reward", reward),
    el("div", { class: "range", role: "group", "aria-label": "Range of the reward" }, el("span", null, "from, to"), el("div", null, low, high)),
    field("order", sort),
    picked,
    reset,
    tally,
  );

  /* Gallery */
  const cards = new Map();
  const card = (image) => cards.get(image) || cards.set(image, makeCard(image)).get(image);
  const makeCard = (image) => {
    const open = el("button", { type: "button", class: "open", "aria-label": "Enlarge image " + visible(image.id), onclick: () => enlarge(image, galleryOrder(), open) }, picture(image, false));
    return el(
      "article",
      { "data-place": image.place },
      open,
      el("header", null, own(image.id), el("b", null, data.rewards[state.reward] + " " + earned(image, state.reward))),
      meter(image.parts[state.reward]),
      el("p", { class: "reason" }, visible(image.summary)),
      answer(image),
    );
  };
  const gallery = el("div", { id: "Gallery" });
  const galleryOrder = () => [...gallery.querySelectorAll("article")].map((node) => byPlace.get(Number(node.dataset.place)));
  const more = el("button", { type: "button", id: "More", onclick: () => {
    const first = state.cards;
    state.cards += CARDS;
    show();
    gallery.querySelectorAll("button.open")[first].focus();
  } });
  const inGroup = (one) => el("section", { class: "group", "aria-label": one.title }, el("h3", null, one.title + " ", el("small", null, one.images.length)), el("p", { class: "note" }, visible(one.note)), el("div", { class: "images" }, one.images.map((place) => card(byPlace.get(place)))));
  /* Whoever searches or sorts wants one list: groups would stand in the way of the order. */
  const isGrouped = () => Object.keys(START).every((key) => state[key] === START[key]);
  const showGallery = (list) => {
    const left = list.length - state.cards;
    more.hidden = isGrouped() || left <= 0;
    more.textContent = "Show " + Math.min(left, CARDS) + " more of " + left.toLocaleString("en");
    gallery.replaceChildren(...(isGrouped() ? data.groups.map(inGroup) : [el("div", { class: "images" }, list.slice(0, state.cards).map(card))]));
  };

  /* Table of all images */
  const columns = [
    ["id", "image"], ["findings", "reference"], ["gt", "reference boxes"], ["pred", "predicted boxes"], ["overlap", "mean IoU"], ["status", "answer"],
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
    { class: "panel", tabindex: 0, role: "region", "aria-label": "Rewards of every image" },
    el("table", { class: "every" }, el("caption", { class: "hidden" }, "Rewards of every image"), el("thead", null, el("tr", null, heads, el("th", { scope: "col" }, "outcome"))), body),
  );
  const pages = el("nav", { class: "pages", "aria-label": "Pages of the table" }, previous, where, next);
  /* Shaded by what is lacking, so that a right normal image is as pale as a right image with findings. */
  const shade = (image, r) => {
    const cell = el("td", { class: "shade" }, number(image.rewards[r]));
    cell.style.setProperty("--lack", String(image.parts[r] === null ? 0 : 1 - image.parts[r]));
    return cell;
  };
  const line = (image, list) => {
    const open = el("button", { type: "button", class: "link", onclick: () => enlarge(image, list, open) }, own(image.id));
    return el(
      "tr",
      { "data-place": image.place },
      el("th", { scope: "row" }, open),
      el("td", { class: "words" }, own(findings(image) || (image.n[0] ? UNKNOWN : "normal"))),
      el("td", null, image.n[0]),
      el("td", null, image.n[1]),
      el("td", null, number(image.overlap)),
      el("td", { class: "words" }, image.tags[0]),
      image.rewards.map((_, r) => shade(image, r)),
      el("td", { class: "words" }, own(image.summary)),
    );
  };
  const showTable = (list) => {
    const last = Math.max(0, Math.ceil(list.length / ROWS) - 1);
    state.page = Math.min(Math.max(state.page, 0), last);
    const first = state.page * ROWS;
    body.replaceChildren(...list.slice(first, first + ROWS).map((image) => line(image, list)));
    where.textContent = list.length ? (first + 1).toLocaleString("en") + "–" + Math.min(first + ROWS, list.length).toLocaleString("en") + " of " + list.length.toLocaleString("en") : "no image";
    previous.disabled = state.page === 0;
    next.disabled = state.page === last;
    heads.forEach((head, c) => {
      if (columns[c][0] === state.sort) head.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
  };
  const show = () => {
    const list = chosen();
    showGallery(list);
    showTable(list);
    const name = state.sort === "reward" + state.reward ? "reward" : state.sort;
    sort.value = ["reward", "overlap", "part"].includes(name) ? name + (state.down ? "-" : "+") : state.down ? "" : name;
    picked.hidden = !state.pick;
    picked.textContent = state.pick ? visible(state.pick.text) + " ✕" : "";
    picked.setAttribute("aria-label", picked.textContent + " show all images");
    const drawn = gallery.querySelectorAll("article").length;
    tally.textContent = count(list.length, "image", "images") + " of " + images.length.toLocaleString("en") + ", " + drawn + " in the gallery";
  };

  /* Enlarged view */
  const layers = { reference: true, predicted: true };
  const toggle = (kind) => {
    layers[kind] = !layers[kind];
    drawLayers();
  };
  const switches = ["reference", "predicted"].map((kind) => el("button", { type: "button", class: "switch", "aria-keyshortcuts": kind[0], onclick: () => toggle(kind) }, kind));
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
  const boxLine = ([side, box]) =>
    el(
      "tr",
      null,
      el("td", null, side),
      el("td", { class: "k-" + kindOf(box[OUTCOME] || "ignored") }, box[OUTCOME] || UNKNOWN),
      el("td", null, box[LABEL] ? (side === "predicted" ? el("q", null, own(box[LABEL])) : own(box[LABEL])) : UNKNOWN),
      el("td", null, box[IOU] || UNKNOWN),
      el("td", null, number(box[SCORE])),
      el("td", null, box.slice(0, 4).map((corner) => (corner === null ? "?" : String(corner))).join(", ")),
    );
  const showLarge = (at) => {
    view.at = at;
    const image = view.list[at];
    title.replaceChildren(own(image.id));
    place.textContent = (at + 1).toLocaleString("en") + " of " + view.list.length.toLocaleString("en");
    back.disabled = at === 0;
    forth.disabled = at === view.list.length - 1;
    const lines = boxLines(image);
    const hidden = image.n[0] + image.n[1] - image.gt.length - image.pred.length;
    const mean = image.sampled.length ? image.sampled.reduce((sum, one) => sum + one, 0) / image.sampled.length : null;
    content.replaceChildren(
      el("div", { class: "image" }, picture(image, true), data.pictures[image.place] ? null : el("p", { class: "soft" }, "No picture of this image is in the report.")),
      el(
        "div",
        { class: "words", tabindex: 0, role: "region", "aria-label": "About this image" },
        el("p", { class: "reason" }, visible(image.summary)),
        el("p", { class: "soft" }, own(image.tags.join(", ")), image.patient ? [" · patient ", own(image.patient)] : [], image.view ? [" · view ", own(image.view)] : [], " · " + image.size.join(" × ") + " pixels"),
        el("dl", { class: "rewards" }, data.rewards.map((name, r) => el("div", null, el("dt", null, visible(name)), el("dd", null, earned(image, r), meter(image.parts[r]))))),
        image.reason ? el("p", { class: "soft" }, "As the reward " + data.reward + " counts: " + visible(image.reason)) : null,
        mean === null ? null : el("p", { class: "soft" }, count(image.sampled.length, "sampled answer", "sampled answers") + ": mean " + number(mean) + ", from " + number(Math.min(...image.sampled)) + " to " + number(Math.max(...image.sampled))),
        lines.length
          ? el(
              "table",
              null,
              el("thead", null, el("tr", null, ["box", "outcome", "label", "IoU", "confidence", "x1, y1, x2, y2"].map((text) => el("th", { scope: "col" }, text)))),
              el("tbody", null, lines.map(boxLine)),
            )
          : el("p", { class: "soft" }, "No boxes."),
        hidden > 0 ? el("p", { class: "soft" }, count(hidden, "more box", "more boxes")) : null,
        answer(image),
      ),
    );
    content.scrollTop = 0;
  };
  const enlarge = (image, list, from) => {
    Object.assign(view, { list, from });
    showLarge(list.indexOf(image));
    drawLayers();
    dialog.showModal();
    title.focus();
  };
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  /* Focus goes back to the image that was shown last, where it has a card. */
  dialog.addEventListener("close", () => {
    const image = view.list[view.at];
    const within = gallery.contains(view.from) ? gallery : body;
    const button = within.querySelector('[data-place="' + image.place + '"] button');
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
    filters,
    el("p", { class: "note keys" }, "Keys: ", ["j", "k"].map((key) => el("kbd", null, key)), " next and previous image, ", el("kbd", null, "Enter"), " enlarge, ", el("kbd", null, "Esc"), " close, ", el("kbd", null, "r"), " and ", el("kbd", null, "p"), " hide reference and predicted boxes in the enlarged view, ", el("kbd", null, "/"), " search."),
    gallery,
    more,
    el("h3", { id: "Every" }, "Every image"),
    el("p", { class: "note" }, "All rewards of the same answers. The darker a cell, the more is lacking to what the reference itself would earn. A click on a heading sorts."),
    table,
    pages,
    dialog,
  );
  show();

  /* The head of the page: the worst and typical answers, which lead to the gallery */
  const lead = ({ title, images: places }) => (place) => {
    const image = byPlace.get(place);
    const follow = (event) => {
      event.preventDefault();
      pick(title + " " + places.length, places);
      gallery.querySelector('[data-place="' + place + '"] button').focus();
    };
    return el("a", { href: "#Images", onclick: follow }, picture(image, false), el("b", null, title, " · ", data.reward, " ", earned(image, data.rewards.indexOf(data.reward))), el("span", null, visible(image.summary)));
  };
  const leads = data.leads.flatMap((group) => group.images.map(lead(group)));
  if (leads.length) document.querySelector("header.top nav").before(el("div", { class: "first", role: "group", "aria-label": "Worst and typical answers" }, leads));
})();

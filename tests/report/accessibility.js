() => {
  // What audits of accessibility find most often in pages like these; empty where all is well.
  const audit = () => {
    const found = [];
    const say = (what, node) => found.push(what + ": " + node.outerHTML.slice(0, 80));
    const seen = (node) => node.getClientRects().length > 0;
    const name = (node) => (node.getAttribute("aria-label") || node.textContent || "").trim();
    for (const head of document.querySelectorAll("th")) if (!name(head)) say("heading of a table is empty", head);
    for (const node of document.querySelectorAll("*")) {
      if (!seen(node) || node.closest("svg")) continue;
      const style = getComputedStyle(node);
      const scrolls = (way, size, room) => /auto|scroll/.test(way) && size > room + 1;
      const across = scrolls(style.overflowX, node.scrollWidth, node.clientWidth);
      if (!across && !scrolls(style.overflowY, node.scrollHeight, node.clientHeight)) continue;
      const inside = node.querySelector("a[href], button:not(:disabled), input, select, [tabindex='0']");
      if (node !== document.documentElement && node.tabIndex < 0 && !inside) say("no key scrolls", node);
    }
    let level = 0;
    for (const head of document.querySelectorAll("h1, h2, h3, h4")) {
      if (!seen(head)) continue;
      const own = Number(head.tagName[1]);
      if (own > level + 1) say("heading skips a level", head);
      level = own;
    }
    const landmarks = "main, header, footer, nav, [role=region], .skip, dialog";
    for (const node of document.querySelectorAll("body > *")) {
      if (seen(node) && !node.matches(landmarks + ", script")) say("outside of every landmark", node);
    }
    const names = new Map();
    for (const node of document.querySelectorAll("nav, [role=region], section[aria-label], section[aria-labelledby]")) {
      if (!seen(node)) continue;
      const key = node.tagName + (node.getAttribute("aria-label") || node.getAttribute("aria-labelledby"));
      if (names.has(key)) say("two landmarks of one name", node);
      names.set(key, node);
    }
    for (const node of document.querySelectorAll("svg:not([aria-hidden]), img, button, input, select, dialog")) {
      if (node.parentElement.closest("svg")) continue;
      const said = ["aria-label", "aria-labelledby", "alt"].some((one) => node.getAttribute(one));
      if (!said && !node.closest("label") && !node.textContent.trim()) say("no name", node);
    }
    for (const list of document.querySelectorAll("ul, ol")) {
      for (const item of list.children) if (item.tagName !== "LI") say("no item of a list", item);
    }
    return found;
  };
  // Text with less contrast to its ground than the 4.5 that WCAG 2.2 asks for.
  const contrast = () => {
    const parse = (text) => text.match(/[\d.]+/g).map(Number);
    const linear = (c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
    const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
    const over = (top, under) => under.map((colour, k) => (top[3] ?? 1) * top[k] + (1 - (top[3] ?? 1)) * colour);
    const ground = (node) =>
      node ? over(parse(getComputedStyle(node).backgroundColor), ground(node.parentElement)) : [255, 255, 255];
    const names = "h1, h2, h3, p, small, th, td, dt, dd, a, pre, label span, figcaption, button";
    const weak = new Set();
    for (const node of document.querySelectorAll(names)) {
      if (!node.textContent.trim() || node.closest("[disabled], .skip")) continue;
      const style = getComputedStyle(node);
      const [x, y] = [light(parse(node.closest("svg") ? style.fill : style.color)), light(ground(node))];
      const ratio = (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
      if (ratio < 4.5) weak.add(node.tagName + " " + ratio.toFixed(2));
    }
    return [...weak];
  };
  return [...audit(), ...contrast()];
}

"use strict";
// Steps through the states of one page. Everything that is shown is text: nothing is ever read as markup.
(() => {
  const holder = document.getElementById("data");
  if (!holder) return;
  const data = JSON.parse(holder.textContent);
  const last = data.first + data.steps.length - 1;
  const get = (id) => document.getElementById(id);
  const [state, slider, only, cursor] = ["state", "slider", "only", "cursor"].map(get);
  const difference = data.difference === null ? last : data.difference;
  let now = -1;

  const make = (tag, name, ...children) => {
    const element = document.createElement(tag);
    if (name) element.className = name;
    element.append(...children);
    return element;
  };
  const SIDES = ["Reference", "System"];

  // Values

  const nameOf = (index) => {
    if (index < 0) return "";
    const [group, request, tokens] = data.names[index];
    if (request < 0) return `content #${tokens}, which the reference does not have`;
    return `the first ${tokens} tokens of request ${request}, group ${group}`;
  };
  const chip = (entry, isOff) => {
    const name = `chip${entry < 0 ? " null" : ""}${isOff ? " off" : ""}`;
    return make("span", name, entry < 0 ? `${-entry} null` : String(entry));
  };
  const chips = (part, other) => {
    if (!part) return make("span", "empty", "no table");
    const [before, entries, after] = part;
    const cell = make("span", "");
    if (before) cell.append(make("span", "chip more", `${before} before, `));
    entries.forEach((entry, place) => {
      const isOff = other !== undefined && (!other || other[1][place + before - other[0]] !== entry);
      cell.append(chip(entry, isOff));
    });
    if (after) cell.append(make("span", "chip more", `and ${after} more`));
    if (!entries.length) cell.append(make("span", "empty", "none"));
    return cell;
  };
  const same = (ours, theirs) => JSON.stringify(ours) === JSON.stringify(theirs);

  // Tables of the two sides

  const row = (label, ours, theirs, show) => {
    const isSame = ours === undefined || same(ours, theirs);
    const line = make("tr", isSame ? "same" : "differs", make("th", "", label));
    if (ours !== undefined) line.append(make("td", "", show(ours)));
    line.append(make("td", "", show(theirs, isSame ? undefined : ours)));
    return line;
  };
  const table = (title, head, rows, hasReference) => {
    if (!rows.length) return [];
    const names = hasReference ? SIDES : SIDES.slice(1);
    const heads = [head, ...names].map((name) => make("th", "", name));
    return [
      make("h3", "", title),
      make("table", "", make("thead", "", make("tr", "", ...heads)), make("tbody", "", ...rows)),
    ];
  };
  const block = ([references, name, flags, holders]) => {
    const said = [];
    const others = references - holders.length;
    if (holders.length) said.push(`held by ${holders.map((number) => `request ${number}`).join(", ")}`);
    if (others > 0) said.push(`${holders.length ? "counts" : "without a holder, and counts"} ${references} ${references === 1 ? "reference" : "references"}`);
    if (others < 0) said.push(`counts ${references} references`);
    if (flags & 1) said.push("free");
    if (flags & 2) said.push("pinned");
    if (flags & 4) said.push("boundaries inside");
    if (!references && !holders.length && !(flags & 3)) said.push("neither held nor free");
    if (name >= 0) said.push(`caches ${nameOf(name)}`);
    return said.join("; ");
  };

  const show = (step) => {
    const { sides: [ours, theirs], requests, operation } = step;
    const has = ours !== null;
    const of = (side, key) => (has || side === theirs ? side && side[key] : undefined);
    const pair = (key) => [has ? ours[key] : undefined, theirs[key]];
    const text = (value) => make("span", value ? "" : "empty", value || "nothing");
    const parts = [make("p", "", make("strong", "", `After operation ${now}: `), operation)];
    parts.push(...table("Answer", "", [row("answer", ...pair("answer"), text)], has));
    if (!theirs.blocks) {
      parts.push(make("p", "empty", "The system's state was not asked for: it raised."));
      state.replaceChildren(...parts);
      return;
    }
    const tables = Object.keys({ ...(has ? ours.tables : {}), ...theirs.tables }).flatMap((number) =>
      data.groups.map((group, index) => {
        const [status, computed, tokens] = requests[number] || ["over", 0, 0];
        const label = `request ${number}, group ${index}`;
        const part = (side) => (side.tables[number] ? side.tables[number][index] : null);
        const line = row(label, has ? part(ours) : undefined, part(theirs), chips);
        line.title = `${status}, ${computed} of ${tokens} tokens computed; ${group}`;
        return line;
      }));
    parts.push(...table("Block tables", "", tables, has));
    const free = [row("in order", ...pair("free"), chips), row("how many", ...pair("count"), (n) => text(String(n)))];
    parts.push(...table("Free queue, front first", "", free, has));
    if (theirs.pinned.length || (has && ours.pinned.length)) {
      const whole = (side) => (side ? [0, side.pinned, 0] : undefined);
      parts.push(...table("Pinned, without a holder", "", [row("in order", whole(has ? ours : null), whole(theirs), chips)], has));
    }
    if (theirs.copies.length || (has && ours.copies.length)) {
      const lines = (side) => (side ? side.copies.join("; ") : undefined);
      parts.push(...table("Copies to come", "", [row("in order", lines(has ? ours : null), lines(theirs), text)], has));
    }
    const blocks = data.blocks.map((number, index) =>
      row(`block ${number}`, has ? ours.blocks[index] : undefined, theirs.blocks[index], (value) => text(block(value))));
    parts.push(...table("Blocks", "", blocks, has));
    state.replaceChildren(...parts);
  };

  // Moving

  const place = () => {
    const column = document.querySelector(`.column[data-step="${now}"]`);
    cursor.hidden = !column;
    if (column) {
      cursor.style.left = `${column.offsetLeft}px`;
      cursor.style.width = `${column.offsetWidth}px`;
    }
  };
  const reveal = (list, item) => {
    const above = item.offsetTop - list.offsetTop;
    if (above < list.scrollTop || above + item.offsetHeight > list.scrollTop + list.clientHeight) {
      list.scrollTop = above - list.clientHeight / 2;
    }
  };
  const go = (step, isLinked) => {
    const wanted = Math.max(data.first, Math.min(last, step));
    if (wanted === now || !data.steps.length) return;
    now = wanted;
    slider.value = String(now);
    document.querySelectorAll("#operations li").forEach((item) => {
      const isNow = item.dataset.step === String(now);
      item.classList.toggle("now", isNow);
      if (isNow) reveal(item.closest(".operations"), item);
    });
    show(data.steps[now - data.first]);
    place();
    if (isLinked) history.replaceState(null, "", `#step=${now}`);
  };
  const jump = () => {
    go(difference, true);
    get("steps").scrollIntoView();
  };

  slider.addEventListener("input", () => go(Number(slider.value), true));
  get("back").addEventListener("click", () => go(now - 1, true));
  get("on").addEventListener("click", () => go(now + 1, true));
  if (get("first")) get("first").addEventListener("click", jump);
  only.addEventListener("change", () => state.classList.toggle("only", only.checked));
  document.querySelectorAll("#operations li[data-step] button, .column").forEach((button) =>
    button.addEventListener("click", () => go(Number((button.dataset.step ? button : button.parentElement).dataset.step), true)));
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target === slider) return;
    const moves = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: data.first, End: last };
    if (event.key in moves) go(moves[event.key], true);
    else if (event.key === "d" && get("first")) jump();
    else return;
    event.preventDefault();
  });
  window.addEventListener("resize", place);
  const copy = get("copy");
  if (copy) {
    copy.addEventListener("click", async () => {
      const range = document.createRange();
      range.selectNodeContents(get("command"));
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      try {
        await navigator.clipboard.writeText(get("command").textContent);
      } catch {
        document.execCommand("copy");
      }
      copy.textContent = "Copied";
    });
  }
  const linked = /^#step=(\d+)$/.exec(location.hash);
  go(linked ? Number(linked[1]) : difference, false);
})();

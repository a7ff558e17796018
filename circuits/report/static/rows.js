// The rows of the tree: search, filter, sort, and the keys that walk them.
{
  const WORDS = ["refuted", "inconclusive", "confirmed", "not tested"];
  const ORDERS = {
    verdict: (a, b) => WORDS.indexOf(a.dataset.verdict) - WORDS.indexOf(b.dataset.verdict),
    weight: (a, b) => b.dataset.weight - a.dataset.weight,
    id: (a, b) => a.dataset.id.localeCompare(b.dataset.id),
  };
  const search = document.getElementById("search");
  const sort = document.getElementById("sort");
  const kind = document.getElementById("kind");
  const words = [...document.querySelectorAll("input[name=verdict]")];
  const leaves = [...document.querySelectorAll(".leaf")].map((row) => ({
    row,
    home: row.parentElement,
    text: row.textContent.toLowerCase(),
  }));

  const filter = () => {
    const asked = search.value.trim().toLowerCase().split(/\s+/);
    const allowed = new Set(words.filter((w) => w.checked).map((w) => w.value));
    let shown = 0;
    for (const { row, text } of leaves) {
      const fits =
        asked.every((word) => text.includes(word)) &&
        allowed.has(row.dataset.verdict) &&
        (!kind.value || row.dataset.kind === kind.value);
      row.hidden = !fits;
      shown += fits;
    }
    for (const branch of document.querySelectorAll(".branch, .own")) {
      branch.hidden = !branch.querySelector(".leaf:not([hidden])");
    }
    // A search that finds something of ours shows it for as long as it lasts.
    for (const own of document.querySelectorAll(".own")) {
      if (search.value.trim() && !own.open) {
        own.open = true;
        own.dataset.opened = "";
      } else if (!search.value.trim() && "opened" in own.dataset) {
        own.open = false;
        delete own.dataset.opened;
      }
    }
    document.getElementById("count").value = `${shown} of ${leaves.length} claims`;
  };

  const arrange = () => {
    const order = ORDERS[sort.value];
    for (const tree of document.querySelectorAll(".tree")) {
      const flat = tree.querySelector(".flat");
      flat.hidden = !order;
      const own = leaves.filter(({ row }) => tree.contains(row));
      if (order) {
        const rows = own.map(({ row }) => row).sort(order);
        flat.append(...rows);
      } else {
        for (const { row, home } of own) home.append(row);
      }
    }
    filter();
  };

  const walk = (from, way) => {
    const seen = leaves.map(({ row }) => row).filter((row) => row.checkVisibility());
    seen.sort((a, b) => (a.compareDocumentPosition(b) & 4 ? -1 : 1));
    const next = seen[seen.indexOf(from) + way];
    next?.querySelector("summary").focus();
  };

  const aim = (id, near) => {
    const paper = near.closest(".paper");
    const row = leaves.find((leaf) => leaf.row.dataset.id === id && paper.contains(leaf.row))?.row;
    if (!row) return;
    row.hidden = false;
    const own = row.closest(".own");
    if (own) {
      own.hidden = false;
      own.open = true;
    }
    const branch = row.closest(".branch");
    if (branch) branch.hidden = false;
    document.querySelector(".aim")?.classList.remove("aim");
    row.classList.add("aim");
    row.open = true;
    row.scrollIntoView({ block: "center" });
    row.querySelector("summary").focus({ preventScroll: true });
  };

  search.addEventListener("input", filter);
  for (const control of [kind, ...words]) control.addEventListener("change", filter);
  sort.addEventListener("change", arrange);
  search.form.addEventListener("submit", (event) => event.preventDefault());
  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-leaf]");
    if (!link) return;
    event.preventDefault();
    aim(link.dataset.leaf, link);
  });
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key === "/" && !typing) {
      event.preventDefault();
      search.focus();
    } else if (event.key === "Escape" && event.target === search) {
      search.value = "";
      filter();
    } else if (event.key === "ArrowDown" && event.target === search) {
      event.preventDefault();
      walk(null, 1);
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const row = event.target.matches("summary") && event.target.closest(".leaf");
      if (!row) return;
      event.preventDefault();
      walk(row, event.key === "ArrowDown" ? 1 : -1);
    }
  });
  // A form that the browser filled in again says what is shown.
  arrange();
}

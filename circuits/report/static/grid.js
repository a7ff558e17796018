// Grids of layers and positions: a cell under the mouse or the arrow keys is read out.
{
  const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

  for (const table of document.querySelectorAll(".cells")) {
    const readout = table.parentElement.nextElementSibling;
    const rows = [...table.tBodies[0].rows].map((row) => [...row.querySelectorAll("td")]);
    let current = rows[0][0];
    current.tabIndex = 0;

    const read = (cell) => {
      if (cell) readout.textContent = cell.dataset.note;
    };
    table.addEventListener("mouseover", (event) => read(event.target.closest("td")));
    table.addEventListener("focusin", (event) => read(event.target.closest("td")));
    table.addEventListener("keydown", (event) => {
      const step = STEPS[event.key];
      if (!step) return;
      event.preventDefault();
      const y = rows.findIndex((row) => row.includes(current));
      const x = rows[y].indexOf(current);
      const next = rows[y + step[0]]?.[x + step[1]];
      if (!next) return;
      current.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
      current = next;
    });
  }
}

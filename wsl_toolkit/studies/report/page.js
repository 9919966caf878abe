"use strict";
// Sorts a table by the heading that is clicked, keeps the rows that hold the words of its box, and marks the column
// under the pointer. Nothing is fetched, stored or evaluated.
(() => {
  const key = (row, column) => {
    const cell = row.cells[column];
    const value = cell.dataset.value;
    return value === undefined ? cell.textContent : Number(value);
  };
  const compare = (a, b, sign) => {
    if (typeof a === "number" && typeof b === "number") return sign * (a - b);
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1; // what has no number comes last, either way
    return sign * a.localeCompare(b, undefined, { numeric: true });
  };
  const sort = (table, column) => {
    const head = table.tHead.rows[0].cells;
    const down = head[column].getAttribute("aria-sort") === "descending";
    for (const cell of head) cell.removeAttribute("aria-sort");
    head[column].setAttribute("aria-sort", down ? "ascending" : "descending");
    const sign = down ? 1 : -1;
    const body = table.tBodies[0];
    const rows = Array.from(body.rows);
    rows.sort((a, b) => compare(key(a, column), key(b, column), sign));
    for (const row of rows) body.appendChild(row);
  };
  const filter = (table, text) => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of table.tBodies[0].rows) {
      const found = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => found.includes(word));
    }
  };
  const mark = (table, column) => {
    for (const row of table.rows) {
      for (const cell of row.cells) cell.classList.toggle("marked", cell.cellIndex === column);
    }
  };
  for (const table of document.querySelectorAll("table")) {
    Array.from(table.tHead.rows[0].cells).forEach((cell, column) => {
      const button = cell.querySelector("button");
      button.addEventListener("click", () => sort(table, column));
    });
    table.addEventListener("mouseover", (event) => {
      const cell = event.target.closest("td, th");
      if (cell) mark(table, cell.cellIndex);
    });
    table.addEventListener("mouseleave", () => mark(table, -1));
    const box = table.closest("section").querySelector("input");
    if (box) {
      box.hidden = false;
      box.addEventListener("input", () => filter(table, box.value));
    }
  }
})();

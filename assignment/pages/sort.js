for (const head of document.querySelectorAll("table.sorted th")) {
  const button = document.createElement("button");
  button.append(...head.childNodes);
  head.append(button);
  button.addEventListener("click", () => {
    const up = head.getAttribute("aria-sort") !== "ascending";
    for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const body = head.closest("table").tBodies[0];
    const key = (row) => row.cells[head.cellIndex].dataset.sort ?? row.cells[head.cellIndex].textContent.trim();
    const order = (a, b) => key(a).localeCompare(key(b), "en", { numeric: true });
    const numbers = (a, b) => Number(key(a)) - Number(key(b));
    const compare = head.classList.contains("n") ? numbers : order;
    body.append(...[...body.rows].sort((a, b) => (up ? compare(a, b) : compare(b, a))));
  });
}

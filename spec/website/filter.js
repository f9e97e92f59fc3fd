// Each long table gets a box that hides the rows without the words typed into it. Nothing is loaded from elsewhere.
document.addEventListener("DOMContentLoaded", () => {
  for (const box of document.querySelectorAll(".searchable")) {
    const rows = [...box.querySelectorAll("tbody tr")];
    const texts = rows.map((row) => row.textContent.toLowerCase());
    // A column of sentences gets room; else it is as narrow as its longest word.
    box.querySelectorAll("thead th").forEach((head, column) => {
      const longest = Math.max(...rows.map((row) => row.cells[column].textContent.length));
      head.style.minWidth = longest > 60 ? "14rem" : longest > 24 ? "6rem" : "2rem";
    });
    const input = document.createElement("input");
    const shown = document.createElement("span");
    input.type = "search";
    input.placeholder = "Filter rows: every word must occur";
    input.setAttribute("aria-label", "Filter rows");
    const filter = () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let count = 0;
      rows.forEach((row, place) => {
        row.hidden = !words.every((word) => texts[place].includes(word));
        count += row.hidden ? 0 : 1;
      });
      shown.textContent = `${count} of ${rows.length} rows`;
    };
    input.addEventListener("input", filter);
    const bar = document.createElement("p");
    bar.className = "filter";
    bar.append(input, shown);
    box.prepend(bar);
    filter();
  }
});

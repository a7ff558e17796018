// Copy a command; save a figure or its numbers.
{
  const save = (name, type, content) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([content], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };

  const copy = async (button) => {
    const code = button.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      // Without a clipboard the text is selected, ready for the reader's own keys.
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
    setTimeout(() => (button.textContent = "Copy"), 1500);
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const { name, source } = button.dataset;
    if (button.matches(".copy")) {
      copy(button);
    } else if (button.matches(".save")) {
      save(name, "text/csv", JSON.parse(document.getElementById(source).textContent));
    } else if (button.matches(".save-image")) {
      const encoded = button.closest("figure").querySelector("img").src.split(",")[1];
      const bytes = Uint8Array.from(atob(encoded), (letter) => letter.charCodeAt(0));
      save(name, "image/svg+xml", bytes);
    }
  });
}

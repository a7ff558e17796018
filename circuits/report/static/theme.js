// Dark or light: what the system prefers, until the reader chooses.
"use strict";
{
  const root = document.documentElement;
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  const show = () => {
    root.dataset.theme = chosen ?? (prefersDark.matches ? "dark" : "light");
  };
  prefersDark.addEventListener("change", show);
  document.getElementById("theme").addEventListener("click", () => {
    chosen = root.dataset.theme === "dark" ? "light" : "dark";
    show();
  });
  // Paper is light.
  addEventListener("beforeprint", () => (root.dataset.theme = "light"));
  addEventListener("afterprint", show);
  show();
}

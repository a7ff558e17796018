// Where a head looks: choose model, step, layer and head, then hover a query.
{
  const SVG = "http://www.w3.org/2000/svg";
  const AXES = ["step", "layer", "head"];

  const draw = (name, attributes) => {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };

  class View {
    constructor(root) {
      this.root = root;
      this.views = JSON.parse(document.getElementById(root.dataset.source).textContent);
      this.models = root.querySelector("select");
      this.knobs = AXES.map((axis) => root.querySelector(`[data-axis=${axis}]`));
      this.views.forEach((view, i) => this.models.add(new Option(view.arm, i)));
      this.models.addEventListener("change", () => this.open());
      for (const knob of this.knobs) knob.addEventListener("input", () => this.show());
      this.open();
    }

    open() {
      this.view = this.views[this.models.value];
      this.bytes = Uint8Array.from(atob(this.view.weights), (c) => c.charCodeAt(0));
      this.knobs.forEach((knob, i) => {
        const labels = this.view[AXES[i]];
        knob.max = labels.length - 1;
        // The end of training, the first layer and head.
        knob.value = AXES[i] === "step" ? labels.length - 1 : 0;
        knob.disabled = knob.hidden = labels.length < 2;
      });
      this.query = this.view.query.length - 1;
      const buttons = this.view.query.map((label, i) => this.button(label, i));
      this.root.querySelector(".queries").replaceChildren(...buttons);
      this.show();
    }

    button(label, i) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = label;
      for (const event of ["mouseenter", "focus", "click"]) {
        button.addEventListener(event, () => this.choose(i));
      }
      return button;
    }

    choose(query) {
      this.query = query;
      this.showRow();
    }

    row(query) {
      const places = this.knobs.map((knob) => Number(knob.value));
      const sizes = AXES.map((axis) => this.view[axis].length);
      const head = places.reduce((sum, place, i) => sum * sizes[i] + place, 0);
      const keys = this.view.key.length;
      const start = (head * this.view.query.length + query) * keys;
      return [...this.bytes.subarray(start, start + keys)].map((level) => level / 255);
    }

    show() {
      this.knobs.forEach((knob, i) => {
        knob.previousElementSibling.value = this.view[AXES[i]][knob.value];
        knob.setAttribute("aria-valuetext", this.view[AXES[i]][knob.value]);
      });
      const { query, key } = this.view;
      const svg = draw("svg", { viewBox: `0 0 ${key.length} ${query.length}` });
      query.forEach((_, y) => {
        this.row(y).forEach((weight, x) => {
          const cell = draw("rect", { x, y, width: 1, height: 1, "fill-opacity": weight });
          cell.addEventListener("mouseenter", () => this.choose(y));
          svg.append(cell);
        });
      });
      this.frame = draw("rect", { class: "chosen", x: 0, width: key.length, height: 1 });
      svg.append(this.frame);
      // Few cells are not blown up.
      svg.style.maxWidth = `${3 * key.length}rem`;
      this.root.querySelector(".map").replaceChildren(svg);
      this.showRow();
    }

    showRow() {
      const { query, key } = this.view;
      this.frame.setAttribute("y", this.query);
      this.root.querySelectorAll(".queries button").forEach((button, i) => {
        button.setAttribute("aria-pressed", i === this.query);
      });
      const weights = this.row(this.query);
      const items = weights.map((weight, i) => {
        const item = document.createElement("li");
        item.textContent = key[i];
        item.style.setProperty("--share", `${100 * weight}%`);
        const value = document.createElement("b");
        value.textContent = weight.toFixed(2);
        item.append(value);
        return item;
      });
      this.root.querySelector(".keys").replaceChildren(...items);
      const top = weights.indexOf(Math.max(...weights));
      this.root.querySelector(".readout").textContent =
        `${query[this.query]} looks hardest at ${key[top]} (${weights[top].toFixed(2)}).`;
    }
  }

  for (const root of document.querySelectorAll(".attention")) new View(root);
}

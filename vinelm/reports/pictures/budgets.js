"use strict";
// The slider: each budget has its words and pictures, made when the page was written; moving it puts them in place.
{
  const slider = document.getElementById("budget"), box = document.getElementById("budgets");
  if (slider) {
    const { stops, pictures } = JSON.parse(document.getElementById("budget-stops").textContent);
    const move = () => {
      const stop = stops[slider.valueAsNumber];
      for (const [name, text] of Object.entries(stop.texts)) box.querySelector(`[data-text="${name}"]`).textContent = text;
      for (const [name, number] of Object.entries(stop.pictures)) {
        const place = box.querySelector(`[data-picture="${name}"]`);
        hide(place.closest("figure"));
        place.innerHTML = pictures[number];
      }
      slider.setAttribute("aria-valuetext", stop.texts.budget);
    };
    slider.hidden = false;
    slider.addEventListener("input", move);
    if (slider.valueAsNumber !== Number(slider.defaultValue)) move();  // a browser may keep the place over a reload
  }
}

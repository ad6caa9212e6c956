// Search of a site that is opened from a disk: a page may load no index there, but a script.
const SITE = document.currentScript.src; // pages of folders ask from there, too
if (location.protocol === "file:") addEventListener("DOMContentLoaded", () => {
  const box = document.createElement("div");
  box.id = "disk-search";
  box.innerHTML = '<input type="search" placeholder="Search" aria-label="Search"><ol hidden></ol>';
  document.querySelector(".md-header__inner").append(box);
  const style = document.createElement("style");
  style.textContent = "#disk-search{position:relative;margin-left:auto}#disk-search input{font:inherit;font-size:.7rem;padding:.25rem .6rem;border-radius:.3rem;border:0;width:11rem;max-width:40vw}" +
    "#disk-search ol{position:absolute;right:0;top:1.8rem;width:22rem;max-width:90vw;max-height:70vh;overflow:auto;margin:0;padding:.3rem;list-style:none;background:var(--md-default-bg-color);box-shadow:0 4px 18px #0004;border-radius:.3rem;font-size:.7rem}" +
    "#disk-search a{display:block;padding:.25rem .5rem;color:var(--md-default-fg-color)}#disk-search a:hover,#disk-search a:focus{background:#8882}#disk-search small{display:block;opacity:.7}";
  document.head.append(style);
  const [input, list] = box.children;
  const show = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean), index = window.SITE_INDEX || [];
    const found = !words.length ? [] : index.map(([place, title, text]) => {
      const low = text.toLowerCase(), head = title.toLowerCase();
      const score = words.every((word) => low.includes(word) || head.includes(word)) ? 1 + words.filter((word) => head.includes(word)).length : 0;
      return [score, place, title, text.slice(Math.max(0, low.indexOf(words[0]) - 40)).slice(0, 110)];
    }).filter(([score]) => score).sort((a, b) => b[0] - a[0]).slice(0, 12);
    list.hidden = !words.length;
    list.replaceChildren(...found.map(([, place, title, text]) => {
      const item = document.createElement("li"), link = document.createElement("a"), small = document.createElement("small");
      link.href = new URL(place, SITE).href;
      link.textContent = title;
      small.textContent = text;
      link.append(small);
      item.append(link);
      return item;
    }));
    if (words.length && !found.length) list.innerHTML = "<li>nothing found</li>";
  };
  const script = document.createElement("script");
  script.src = new URL("search/local.js", SITE).href;
  script.onload = show;
  document.head.append(script);
  input.addEventListener("input", show);
  input.addEventListener("keydown", (event) => event.key === "Enter" && list.querySelector("a")?.click());
  addEventListener("keydown", (event) => {
    if (event.key === "/" && event.target !== input) { event.preventDefault(); input.focus(); }
  });
});

// The server sends the table as it is now; readers are told every five seconds at most.
const table = document.getElementById("live");
const told = document.getElementById("told");
const source = new EventSource(table.dataset.events);
let last = 0;
source.onmessage = (event) => {
  table.innerHTML = event.data;
  const now = Date.now();
  if (now - last >= 5000) {
    last = now;
    told.textContent = `${table.querySelectorAll("tbody tr").length} runs are shown, as of ${new Date(now).toLocaleTimeString()}.`;
  }
};
source.onerror = () => { told.textContent = "The server is away; trying again."; };

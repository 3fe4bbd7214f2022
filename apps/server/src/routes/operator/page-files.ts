/** The files of the operator's page: no framework, and no inline code, which the content security policy forbids. */

export const operatorHtml: string = `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <meta name="viewport" content="width=device-width, initial-scale=1" />
    <title>Winnow: batches</title>
    <link rel="stylesheet" href="/operator.css" />
    <script type="module" src="/operator.js"></script>
  </head>
  <body>
    <main>
      <h1>Batches</h1>
      <form id="key-form" hidden>
        <label>API key <input id="key" type="password" autocomplete="off" /></label>
        <button>Show</button>
      </form>
      <p id="state" role="status">Loading</p>
      <section aria-labelledby="queues-title">
        <h2 id="queues-title">Queues</h2>
        <table>
          <thead><tr><th>Model</th><th>Waiting</th><th>Running</th><th>Workers</th></tr></thead>
          <tbody id="queues"></tbody>
        </table>
      </section>
      <section aria-labelledby="batches-title">
        <h2 id="batches-title">Your batches</h2>
        <table>
          <thead>
            <tr><th>Batch</th><th>Status</th><th>Done</th><th>Failed</th><th>Running</th><th>Lines/s</th><th>Time left</th></tr>
          </thead>
          <tbody id="batches"></tbody>
        </table>
      </section>
      <section aria-labelledby="failures-title">
        <h2 id="failures-title">Failed lines</h2>
        <table>
          <thead><tr><th>Batch</th><th>Line</th><th>Code</th><th>Message</th></tr></thead>
          <tbody id="failures"></tbody>
        </table>
      </section>
    </main>
  </body>
</html>
`;

export const operatorCss: string = `:root { color-scheme: light dark; font-family: system-ui, sans-serif; line-height: 1.4; }
body { margin: 0; }
main { max-width: 70rem; margin: 0 auto; padding: 1rem; }
section { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 0.8rem 0.3rem 0; }
th, td { border-bottom: 1px solid color-mix(in srgb, currentColor 25%, transparent); }
td { overflow-wrap: anywhere; }
`;

/** Texts of the server become text nodes only. The key stays in the tab. */
export const operatorScript: string = `const element = (id) => document.getElementById(id);
const pollMs = 2000;

function row(...cells) {
  const tr = document.createElement('tr');
  for (const cell of cells) tr.insertCell().textContent = String(cell);
  return tr;
}

function timeText(seconds) {
  if (seconds === null) return '';
  if (seconds < 100) return seconds + ' s';
  return seconds < 6000 ? Math.round(seconds / 60) + ' min' : (seconds / 3600).toFixed(1) + ' h';
}

function show({ queues, batches }) {
  const workersOf = ({ workers }) => workers.map(({ name, running }) => name + ' (' + running + ')').join(', ');
  element('queues').replaceChildren(
    ...queues.map((each) => row(each.queue, each.waiting, each.running, workersOf(each))),
  );
  element('batches').replaceChildren(
    ...batches.map(({ id, status, lines, lines_per_second: rate, seconds_left: left }) => {
      const total = lines.waiting + lines.running + lines.completed + lines.failed;
      const done = lines.completed + ' of ' + total;
      return row(id, status, done, lines.failed, lines.running, rate, timeText(left));
    }),
  );
  element('failures').replaceChildren(
    ...batches.flatMap(({ id, failures }) => failures.map(({ line, code, message }) => row(id, line, code, message))),
  );
}

async function refresh() {
  const key = sessionStorage.getItem('key');
  const headers = key === null ? {} : { authorization: 'Bearer ' + key };
  try {
    const response = await fetch('/jobs', { headers });
    element('key-form').hidden = response.status !== 401;
    if (response.status === 401) {
      element('state').textContent = 'This server needs an API key.';
      return;
    }
    if (!response.ok) throw new Error('status ' + response.status);
    show(await response.json());
    element('state').textContent = 'Updated ' + new Date().toLocaleTimeString();
  } catch (error) {
    element('state').textContent = 'The server does not answer: ' + error.message;
  }
}

element('key-form').addEventListener('submit', (event) => {
  event.preventDefault();
  sessionStorage.setItem('key', element('key').value);
  void refresh();
});
void refresh();
setInterval(() => void refresh(), pollMs);
`;

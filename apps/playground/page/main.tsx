/** Starts the page with the backend of its home. */
import { render } from 'preact';
import { effect } from '@preact/signals';
import '@picocss/pico/css/pico.min.css';
import './style.css';
import './view/tools/tools.css';
import { errorText, type ChatBackend } from './backend/contract.js';
import { Chat } from './state/chat.js';
import { createMemoryHistory, openHistory, type History } from './state/database.js';
import { applyTheme, SettingsStore } from './state/settings.js';
import { Tools } from './state/tools/tools.js';
import { registerOffline } from './offline/register.js';
import { App } from './view/app.js';

const settings = new SettingsStore(localStorage, sessionStorage);
effect(() => applyTheme(document.documentElement, settings.settings.value.theme));

/** The mode is known when the page is built, so that a home contains only its own backend. */
async function createBackend(): Promise<ChatBackend> {
  if (import.meta.env.MODE === 'static') return (await import('./backend/local.js')).createLocalBackend();
  const { createServedBackend } = await import('./backend/served.js');
  return createServedBackend({ baseUrl: document.baseURI, apiKey: () => settings.apiKey.value });
}

let storageProblem = '';
async function createHistory(): Promise<History> {
  try {
    return await openHistory();
  } catch (error) {
    storageProblem = `The browser does not store conversations: ${errorText(error)}`;
    return createMemoryHistory();
  }
}

const [backend, history] = await Promise.all([createBackend(), createHistory()]);
const tools = new Tools({ backend, settings });
const chat = new Chat({
  backend,
  history,
  settings,
  tools,
  storageProblem,
  now: () => Date.now(),
  createId: () => crypto.randomUUID(),
});
render(
  <App chat={chat} settings={settings} backend={backend} tools={tools} />,
  document.querySelector('#app') as HTMLElement,
);
await chat.start();
if (import.meta.env.MODE === 'static') await registerOffline();

/** The line above a conversation: model, theme, settings. */
import type { Signal } from '@preact/signals';
import type { JSX } from 'preact';
import type { Chat } from '../state/chat.js';
import type { SettingsStore, Theme } from '../state/settings.js';
import type { Panel } from './app.js';

interface ToolbarProps {
  readonly chat: Chat;
  readonly settings: SettingsStore;
  readonly panel: Signal<Panel>;
  /** Whether this home loads models. */
  readonly canLoad: boolean;
}

const nextTheme: Readonly<Record<Theme, Theme>> = { system: 'light', light: 'dark', dark: 'system' };

export function Toolbar({ chat, settings, panel, canLoad }: ToolbarProps): JSX.Element {
  const { theme, showsMetrics } = settings.settings.value;
  const open = (name: Panel) => (): void => {
    panel.value = name;
  };
  return (
    <header>
      <button type="button" class="quiet narrow" aria-label="Conversations" onClick={open('conversations')}>
        ☰
      </button>
      <h1>Winnow</h1>
      <ModelChooser chat={chat} settings={settings} />
      {canLoad && (
        <button type="button" class="quiet" onClick={open('loader')}>
          Load a model
        </button>
      )}
      <span class="space" />
      <button type="button" class="quiet" onClick={open('compare')}>
        Compare
      </button>
      <button
        type="button"
        class="quiet"
        aria-pressed={showsMetrics}
        onClick={() => settings.update({ showsMetrics: !showsMetrics })}
      >
        Live view
      </button>
      <button type="button" class="quiet" onClick={() => settings.update({ theme: nextTheme[theme] })}>
        Theme: {theme}
      </button>
      <button type="button" class="quiet" onClick={open('tools')}>
        Tools
      </button>
      <button type="button" class="quiet" onClick={open('settings')}>
        Settings
      </button>
    </header>
  );
}

function ModelChooser({ chat, settings }: Pick<ToolbarProps, 'chat' | 'settings'>): JSX.Element | null {
  const models = chat.models.value.filter(({ canChat }) => canChat);
  const chosen = chat.model();
  if (chosen === undefined) return null;
  if (models.length === 1) return <span class="model">{chosen.id}</span>;
  return (
    <select
      aria-label="Model"
      value={chosen.id}
      onChange={(event) => settings.update({ model: event.currentTarget.value })}
    >
      {models.map(({ id }) => (
        <option key={id} value={id}>
          {id}
        </option>
      ))}
    </select>
  );
}

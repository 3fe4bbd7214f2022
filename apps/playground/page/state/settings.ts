/** What the user has set, kept across visits; the API key only as long as the tab. */
import { effect, signal, type Signal } from '@preact/signals';
import type { LoadSettings, Sampling } from '../backend/contract.js';

export type Theme = 'system' | 'light' | 'dark';

export interface Settings {
  readonly theme: Theme;
  readonly systemPrompt: string;
  readonly sampling: Sampling;
  /** Text of a JSON schema; empty: none. */
  readonly jsonSchema: string;
  /** Whether answers carry log-probabilities, for the token view. */
  readonly showsTokens: boolean;
  readonly showsMetrics: boolean;
  /** Id of the model of the last visit. */
  readonly model: string;
  /** For the static home. */
  readonly hubEndpoint: string;
  readonly load: LoadSettings;
}

const defaults: Settings = {
  theme: 'system',
  systemPrompt: '',
  sampling: {},
  jsonSchema: '',
  showsTokens: false,
  showsMetrics: false,
  model: '',
  hubEndpoint: 'https://huggingface.co',
  load: {},
};

const settingsKey = 'winnow-settings';
const apiKeyKey = 'winnow-api-key';

export class SettingsStore {
  readonly settings: Signal<Settings>;
  readonly apiKey: Signal<string>;

  constructor(kept: Storage, ofTab: Storage) {
    this.settings = signal({ ...defaults, ...parsed(kept.getItem(settingsKey)) });
    this.apiKey = signal(ofTab.getItem(apiKeyKey) ?? '');
    effect(() => kept.setItem(settingsKey, JSON.stringify(this.settings.value)));
    effect(() => ofTab.setItem(apiKeyKey, this.apiKey.value));
  }

  update(changes: Partial<Settings>): void {
    this.settings.value = { ...this.settings.value, ...changes };
  }
}

/** The fields with one changed, or without it when it is undefined. */
export function withField<Fields extends object, Name extends keyof Fields>(
  fields: Fields,
  name: Name,
  value: Fields[Name] | undefined,
): Fields {
  const entries = Object.entries({ ...fields, [name]: value }).filter(([, kept]) => kept !== undefined);
  return Object.fromEntries(entries) as Fields;
}

function parsed(text: string | null): Partial<Settings> {
  try {
    return JSON.parse(text ?? '{}') as Partial<Settings>;
  } catch {
    return {};
  }
}

/** Shows the theme: Pico reads `data-theme`, and follows the system without it. */
export function applyTheme(root: HTMLElement, theme: Theme): void {
  if (theme === 'system') root.removeAttribute('data-theme');
  else root.setAttribute('data-theme', theme);
}

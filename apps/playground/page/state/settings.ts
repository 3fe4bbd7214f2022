/** What the user has set, kept across visits; the API key only as long as the tab. */
import { effect, signal, type Signal } from '@preact/signals';
import { errorText, type LoadSettings, type Sampling } from '../backend/contract.js';

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
  /** Why settings are not stored; empty while they are. */
  readonly problem: Signal<string> = signal('');

  constructor(kept: Storage, ofTab: Storage) {
    this.settings = signal({ ...defaults, ...parsed(kept.getItem(settingsKey)) });
    this.apiKey = signal(ofTab.getItem(apiKeyKey) ?? '');
    effect(() => {
      const problems = [
        store(kept, settingsKey, JSON.stringify(this.settings.value)),
        store(ofTab, apiKeyKey, this.apiKey.value),
      ];
      this.problem.value = problems.find((problem) => problem !== '') ?? '';
    });
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

/** @returns what went wrong, or an empty text */
function store(storage: Storage, key: string, value: string): string {
  try {
    storage.setItem(key, value);
    return '';
  } catch (error) {
    return `The browser does not store settings: ${errorText(error)}`;
  }
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

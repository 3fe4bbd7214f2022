/** What the user has set, kept across visits; the API key and tokens only as long as the tab. */
import { effect, signal, type Signal } from '@preact/signals';
import { errorText, type LoadSettings, type Sampling } from '../backend/contract.js';

export type Theme = 'system' | 'light' | 'dark';

export interface McpAddress {
  readonly url: string;
  /** Whether its tools are offered to models. */
  readonly isOn: boolean;
}

export interface Settings {
  readonly theme: Theme;
  readonly systemPrompt: string;
  readonly sampling: Sampling;
  /** Text of a JSON schema; empty: none. */
  readonly jsonSchema: string;
  /** JSON of the functions that the user answers; empty: none. */
  readonly functions: string;
  readonly mcpServers: readonly McpAddress[];
  /** Whether the first answer to each message calls a tool. */
  readonly requiresCall: boolean;
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
  functions: '',
  mcpServers: [],
  requiresCall: false,
  showsTokens: false,
  showsMetrics: false,
  model: '',
  hubEndpoint: 'https://huggingface.co',
  load: {},
};

const settingsKey = 'winnow-settings';
const apiKeyKey = 'winnow-api-key';
const tokensKey = 'winnow-mcp-tokens';

export class SettingsStore {
  readonly settings: Signal<Settings>;
  readonly apiKey: Signal<string>;
  /** Tokens of MCP servers by URL, kept until the tab closes. */
  readonly mcpTokens: Signal<Readonly<Record<string, string>>>;
  /** Why settings are not stored; empty while they are. */
  readonly problem: Signal<string> = signal('');

  constructor(kept: Storage, ofTab: Storage) {
    this.settings = signal({ ...defaults, ...parsed<Partial<Settings>>(kept.getItem(settingsKey)) });
    this.mcpTokens = signal(parsed(ofTab.getItem(tokensKey)));
    this.apiKey = signal(ofTab.getItem(apiKeyKey) ?? '');
    effect(() => {
      const problems = [
        store(kept, settingsKey, JSON.stringify(this.settings.value)),
        store(ofTab, apiKeyKey, this.apiKey.value),
        store(ofTab, tokensKey, JSON.stringify(this.mcpTokens.value)),
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

function parsed<T extends object>(text: string | null): T {
  try {
    return JSON.parse(text ?? '{}') as T;
  } catch {
    return {} as T;
  }
}

/** Shows the theme: Pico reads `data-theme`, and follows the system without it. */
export function applyTheme(root: HTMLElement, theme: Theme): void {
  if (theme === 'system') root.removeAttribute('data-theme');
  else root.setAttribute('data-theme', theme);
}

/** The tools of the page: functions that the user answers, and those of MCP servers. */
import { signal, type Signal } from '@preact/signals';
import { Toolbox, type OfferedTools, type ToolHost } from '@winnow/mcp';
import type { ChatBackend } from '../../backend/contract.js';
import type { SettingsStore } from '../settings.js';
import { Connections } from './connections.js';
import { parseFunctions, TypedFunctions } from './functions.js';
import { Questions } from './questions.js';

export interface ToolsOptions {
  readonly backend: ChatBackend;
  readonly settings: SettingsStore;
}

export class Tools {
  readonly questions: Questions = new Questions();
  readonly connections: Connections;
  /** What happened since the last message, such as a call that failed or a tool that cannot be used. */
  readonly notices: Signal<readonly string[]> = signal([]);
  readonly toolbox: Toolbox;
  readonly #options: ToolsOptions;
  readonly #functions: TypedFunctions;

  constructor(options: ToolsOptions) {
    this.#options = options;
    this.#functions = new TypedFunctions(({ name, arguments: values }, abort) =>
      this.questions.result({ server: this.#functions, tool: name, arguments: values }, abort),
    );
    this.toolbox = new Toolbox([this.#functions]);
    this.connections = new Connections(this.toolbox);
  }

  /**
   * Connects to the servers that are switched on.
   * @throws {Error} when one cannot be reached, and for functions that cannot be read
   */
  async connect(abort: AbortSignal): Promise<void> {
    const { settings, mcpTokens } = this.#options.settings;
    const { functions, mcpServers } = settings.value;
    const wanted = mcpServers.filter(({ isOn }) => isOn);
    await this.connections.use(
      wanted.map((server) => ({ ...server, token: mcpTokens.value[server.url] ?? '' })),
      abort,
    );
    this.#functions.use(parseFunctions(functions));
  }

  /**
   * The tools of one answer of a model.
   * @throws what `connect` throws, and the reason of `abort`
   */
  async offer(model: string, abort: AbortSignal): Promise<OfferedTools> {
    await this.connect(abort);
    const host: ToolHost = {
      signal: abort,
      check: (tool) => this.#options.backend.toolFault(model, tool, abort),
      ask: (request) => this.questions.consent(request, abort),
      notice: (text) => (this.notices.value = [...this.notices.value, text]),
      // the list of calls shows it
      wait: () => {},
    };
    return this.toolbox.offer(host);
  }
}

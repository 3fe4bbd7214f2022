/** Messages between the page and the worker in which a model runs. */
import type { ChatCall, ChatEvent, LoadProgress, LoadSettings, ModelSource, Tool } from './contract.js';

export type WorkerCall =
  | { readonly type: 'load'; readonly source: ModelSource; readonly settings: LoadSettings }
  | { readonly type: 'chat'; readonly call: ChatCall }
  | { readonly type: 'tool-fault'; readonly model: string; readonly tool: Tool }
  | { readonly type: 'count-tokens'; readonly model: string; readonly text: string }
  | { readonly type: 'models' }
  | { readonly type: 'metrics' }
  | { readonly type: 'cached' }
  | { readonly type: 'remove'; readonly name: string };

export type ToWorker =
  | { readonly id: number; readonly call: WorkerCall }
  /** Ends the call of this id. */
  | { readonly id: number; readonly abort: true };

export type FromWorker =
  | { readonly id: number; readonly type: 'event'; readonly event: ChatEvent }
  | { readonly id: number; readonly type: 'progress'; readonly progress: LoadProgress }
  | { readonly id: number; readonly type: 'result'; readonly result: unknown }
  | { readonly id: number; readonly type: 'error'; readonly message: string };

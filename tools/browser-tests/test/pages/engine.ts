/** In the page: the engine from model files to tokens, with a timer that shows whether the page stays responsive. */
import { createWasmBackend, type CreateWasmBackendOptions } from '@winnow/backend-wasm';
import { loadModel, type GenerateOptions, type Model, type ModelLocation } from '@winnow/engine';
import { blobFolder } from '@winnow/hub';
import { createReferenceBackend, type Backend } from '@winnow/ops';

/** How the page loads a model. */
export type Source =
  | { readonly kind: 'url'; readonly url: string }
  /** Downloaded first, like a file picked by a user. */
  | { readonly kind: 'blob'; readonly url: string }
  | { readonly kind: 'blobFolder'; readonly url: string; readonly names: readonly string[] };

export interface LoadInput {
  readonly source: Source;
  /** Backend option: none, the reference backend, or a WebAssembly backend with these options. */
  readonly backend: 'default' | 'reference' | CreateWasmBackendOptions;
}

export interface ModelFacts {
  readonly backend: string;
  readonly fallbacks: readonly string[];
  readonly notices: readonly string[];
}

export interface Generated {
  readonly tokens: readonly number[];
  readonly text: string;
}

/** How often the event loop of the page ran. */
export interface Turns {
  /** Ticks of a 1 ms timer. */
  numTicks: number;
  /** Calls of `requestAnimationFrame`. */
  numFrames: number;
}

interface Window {
  requestAnimationFrame(callback: () => void): number;
  cancelAnimationFrame(handle: number): void;
}

let model: Model | undefined;
let backend: Backend | undefined;

function loaded(): Model {
  if (model === undefined) throw new Error('no model is loaded');
  return model;
}

async function fetchBlob(url: string | URL): Promise<Blob> {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${String(url)}: ${response.status}`);
  return response.blob();
}

async function locate(source: Source): Promise<ModelLocation> {
  if (source.kind === 'url') return source.url;
  if (source.kind === 'blob') return fetchBlob(source.url);
  const { url, names } = source;
  const entries = names.map(async (name) => [name, await fetchBlob(new URL(name, url))] as const);
  return blobFolder(new Map(await Promise.all(entries)));
}

function countTurns(): { readonly turns: Turns; stop(): void } {
  const window = globalThis as unknown as Window;
  const turns: Turns = { numTicks: 0, numFrames: 0 };
  const timer = setInterval(() => turns.numTicks++, 1);
  let frame = window.requestAnimationFrame(function next() {
    turns.numFrames++;
    frame = window.requestAnimationFrame(next);
  });
  return {
    turns,
    stop() {
      clearInterval(timer);
      window.cancelAnimationFrame(frame);
    },
  };
}

/** Greedy, ignoring end tokens. */
async function generateGreedy(prompt: number[], options: GenerateOptions): Promise<Generated> {
  const generation = loaded().generate(prompt, { temperature: 0, ignoreEos: true, ...options });
  const tokens: number[] = [];
  for await (const { tokenId } of generation) tokens.push(tokenId);
  return { tokens, text: loaded().tokenizer.decode(tokens) };
}

/** The same tokens in another order, so that no cached prefix matches. */
function rotated(prompt: readonly number[], count: number): number[] {
  const begin = count % prompt.length;
  return [...prompt.slice(begin), ...prompt.slice(0, begin)];
}

const api = {
  async load({ source, backend: choice }: LoadInput): Promise<ModelFacts> {
    if (choice === 'reference') backend = createReferenceBackend();
    else if (choice !== 'default') backend = await createWasmBackend(choice);
    model = await loadModel(await locate(source), backend === undefined ? {} : { backend });
    const { fallbacks, notices } = model;
    return { backend: model.backend, fallbacks: fallbacks.map(({ op, reason }) => `${op}: ${reason}`), notices };
  },

  async tokenize(text: string): Promise<number[]> {
    return [...loaded().tokenizer.encode(text, { addSpecialTokens: false })];
  },

  async encodePrompt(text: string): Promise<number[]> {
    return [...loaded().encodePrompt(text)];
  },

  async generate({ prompt, maxTokens }: { prompt: number[]; maxTokens: number }): Promise<Generated> {
    return generateGreedy(prompt, { maxTokens });
  },

  /** Computes up to `maxPrompts` long prompts until the page has had the required ticks. */
  async longPrompts(input: {
    prompt: number[];
    wantedTicks: number;
    wantedFrames: number;
    maxPrompts: number;
  }): Promise<Turns> {
    const { prompt, wantedTicks, wantedFrames, maxPrompts } = input;
    const { turns, stop } = countTurns();
    try {
      for (let index = 0; index < maxPrompts; index++) {
        if (turns.numTicks >= wantedTicks && turns.numFrames >= wantedFrames) break;
        await generateGreedy(rotated(prompt, index), { maxTokens: 1 });
      }
      return { ...turns };
    } finally {
      stop();
    }
  },

  /** Aborts endless generations from a timer, like a button. @returns the name of the error */
  async interrupt(prompt: number[]): Promise<string> {
    const controller = new AbortController();
    const timer = setTimeout(() => controller.abort(), 5);
    try {
      for (let index = 0; index < 100; index++)
        await generateGreedy(rotated(prompt, index), { signal: controller.signal, maxTokens: 8 });
      return 'never interrupted';
    } catch (error) {
      return error instanceof Error ? error.name : String(error);
    } finally {
      clearTimeout(timer);
    }
  },

  async dispose(_input: null): Promise<void> {
    await model?.dispose();
    await backend?.dispose();
    model = undefined;
    backend = undefined;
  },
};

export type EnginePage = typeof api;

Object.assign(globalThis, { api });

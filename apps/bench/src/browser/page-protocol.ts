/** What a page with a program offers to the bench: JSON in, JSON out. */

export interface PageLoadInput {
  /** Of the model, below the server. */
  readonly modelUrl: string;
  readonly contextSize: number;
  readonly threads: number;
  /** Tokens per step of a prompt; the program's default without it. */
  readonly batchSize: number | undefined;
  readonly kvDType: string;
  readonly attention: string | undefined;
  readonly flashAttention: boolean;
}

export interface PageGenerateInput {
  readonly prompt: string;
  readonly count: number;
  /** Whether what is left of the last prompt may be used; else all of it is computed. */
  readonly keepsContext: boolean;
}

export interface PageResult {
  readonly timeMs: number;
  /** Tokens of the prompt that were computed; the others came from the context. */
  readonly numComputed: number;
  readonly numGenerated: number;
  readonly text: string;
}

export interface PageApi {
  /** @returns the threads that it uses */
  load(input: PageLoadInput): Promise<number>;
  /** Greedy, past end tokens. */
  generate(input: PageGenerateInput): Promise<PageResult>;
}

/** Makes the functions callable from outside of the page. */
export function offer(api: PageApi): void {
  Object.assign(globalThis, { api });
}

export async function fetchBlob(url: string): Promise<Blob> {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: ${response.status}`);
  return response.blob();
}

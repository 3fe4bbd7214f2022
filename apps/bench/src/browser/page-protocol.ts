/** The interface of a page to the bench: JSON in, JSON out. */

export interface PageLoadInput {
  /** Path of the model below the server. */
  readonly modelUrl: string;
  readonly contextSize: number;
  readonly threads: number;
  /** Number of prompt tokens per step. Default: that of the program. */
  readonly batchSize: number | undefined;
  readonly kvDType: string;
  readonly attention: string | undefined;
  readonly flashAttention: boolean;
}

export interface PageGenerateInput {
  readonly prompt: string;
  readonly count: number;
  /** Whether a cached prefix of the last prompt may be reused; otherwise the whole prompt is computed. */
  readonly keepsContext: boolean;
}

export interface PageResult {
  readonly timeMs: number;
  /** Number of computed prompt tokens; the others were cached. */
  readonly numComputed: number;
  readonly numGenerated: number;
  readonly text: string;
}

export interface PageApi {
  /** @returns the number of threads in use */
  load(input: PageLoadInput): Promise<number>;
  /** Generates greedily, ignoring end tokens. */
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

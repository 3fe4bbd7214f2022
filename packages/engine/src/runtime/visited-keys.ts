/** Counts the keys that attention visits, from the outputs of steps. */
import type { Executable } from '@winnow/ops';
import type { VisitedKeysMetrics } from '../metrics/visited-keys.js';
import { visitedOutput, type VisitedLayer } from '../plan/visited-layers.js';
import type { StepPart } from './sequence.js';

interface LayerCounts extends VisitedLayer {
  numVisible: number;
  /** By KV head, or one for all heads. */
  numVisited: Float64Array;
}

/** The counts of a model, of all its programs. */
export class VisitedKeys {
  readonly #layers: readonly LayerCounts[];
  readonly #isSparse: (layer: number) => boolean;
  #numTokens = 0;

  /** @param isSparse whether generated tokens attend under a policy in this layer */
  constructor(layers: readonly VisitedLayer[], isSparse: (layer: number) => boolean) {
    this.#layers = layers.map((layer) => ({ ...layer, numVisible: 0, numVisited: new Float64Array(1) }));
    this.#isSparse = isSparse;
  }

  /** @returns undefined for a program that does not report the keys of all sparse layers */
  counterFor(executable: Executable): StepCounter | undefined {
    const { outputs, symbols } = executable.program;
    const maxTokens = symbols.get('T') as number;
    const readers = this.#layers.map((counts): LayerReader | undefined => {
      const output = visitedOutput(counts.layer);
      const shape = outputs.get(output)?.shape;
      if (shape === undefined)
        return this.#isSparse(counts.layer) ? undefined : { counts, output, width: 0, rows: noRows };
      const width = Number(shape[1] ?? 1);
      if (counts.numVisited.length < width) counts.numVisited = new Float64Array(width);
      return { counts, output, width, rows: new Int32Array(maxTokens * width) };
    });
    if (!readers.every((reader) => reader !== undefined)) return undefined;
    return { count: (parts) => this.#count(executable, readers, parts) };
  }

  metrics(): VisitedKeysMetrics {
    const layers = this.#layers.map(({ layer, numVisible, numVisited }) => ({
      ...{ layer, numVisibleKeys: numVisible, numVisitedKeys: [...numVisited] },
    }));
    return { numTokens: this.#numTokens, layers };
  }

  async #count(executable: Executable, readers: readonly LayerReader[], parts: readonly StepPart[]): Promise<void> {
    if (!parts.some(({ count }) => count === 1)) return;
    const numTokens = parts.reduce((sum, { count }) => sum + count, 0);
    for (const { output, width, rows } of readers) {
      if (width > 0) await executable.read(output, rows.subarray(0, numTokens * width));
    }
    let token = 0;
    for (const { count, sequence } of parts) {
      if (count === 1) this.#add(readers, token, sequence.view.numSlots);
      token += count;
    }
  }

  #add(readers: readonly LayerReader[], token: number, numSlots: number): void {
    this.#numTokens++;
    for (const { counts, width, rows } of readers) {
      const numVisible = visibleKeys(counts, numSlots);
      counts.numVisible += numVisible;
      const { numVisited } = counts;
      for (let head = 0; head < numVisited.length; head++) {
        // a layer may report one number for all heads in one phase and one per head in the other
        const own = width === 0 ? numVisible : (rows[token * width + Math.min(head, width - 1)] as number);
        numVisited[head] = (numVisited[head] as number) + own;
      }
    }
  }
}

/** Keys that the last of this many tokens may attend to. */
function visibleKeys({ window, chunked }: VisitedLayer, numSlots: number): number {
  if (window === 0) return numSlots;
  return chunked === true ? ((numSlots - 1) % window) + 1 : Math.min(window, numSlots);
}

/** Counts the tokens of the last step of a program. */
export interface StepCounter {
  count(parts: readonly StepPart[]): Promise<void>;
}

interface LayerReader {
  readonly counts: LayerCounts;
  readonly output: string;
  /** Numbers per token; 0 for dense layers. */
  readonly width: number;
  readonly rows: Int32Array; // [maxTokens, width]
}

const noRows = new Int32Array(0);

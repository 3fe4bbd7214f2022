/** Progress bars on stderr, on terminals only. */
import { SingleBar } from 'cli-progress';
import { formatBytes } from './format.js';
import type { OutputStream } from './io.js';

export interface Progress {
  /** Shows `label` at `value` of `total`; a new label starts a new bar. */
  show(label: string, value: number, total: number, unit: 'bytes' | 'tokens'): void;
  /** Removes the bar. */
  clear(): void;
}

const silent: Progress = { show: () => {}, clear: () => {} };

/** A bar that erases itself, or a no-op when stderr is not a terminal or with --quiet. */
export function createProgress(stderr: OutputStream, isQuiet: boolean): Progress {
  if (isQuiet || stderr.isTTY !== true) return silent;
  return new Bars(stderr);
}

class Bars implements Progress {
  readonly #stream: OutputStream;
  #bar: SingleBar | undefined;
  #label = '';

  constructor(stream: OutputStream) {
    this.#stream = stream;
  }

  show(label: string, value: number, total: number, unit: 'bytes' | 'tokens'): void {
    if (value >= total) {
      this.clear();
      return;
    }
    if (label === this.#label && this.#bar !== undefined) {
      this.#bar.setTotal(total);
      this.#bar.update(value);
      return;
    }
    this.clear();
    this.#label = label;
    this.#bar = new SingleBar({
      stream: this.#stream,
      format: `${label} [{bar}] {percentage}% {value}/{total}`,
      formatValue: (number, _options, type) => (type === 'percentage' ? `${number}` : formatAmount(number, unit)),
      clearOnComplete: true,
      hideCursor: true,
      barsize: 24,
    });
    this.#bar.start(total, value);
  }

  clear(): void {
    this.#bar?.stop();
    this.#bar = undefined;
    this.#label = '';
  }
}

function formatAmount(value: number, unit: 'bytes' | 'tokens'): string {
  return unit === 'bytes' ? formatBytes(value) : `${value}`;
}

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
  let bar: SingleBar | undefined;
  let current = '';
  const clear = (): void => {
    bar?.stop();
    bar = undefined;
    current = '';
  };
  return {
    clear,
    show: (label, value, total, unit) => {
      if (value >= total) {
        clear();
        return;
      }
      if (label !== current || bar === undefined) {
        clear();
        current = label;
        bar = new SingleBar({
          stream: stderr,
          format: `${label} [{bar}] {percentage}% {value}/{total}`,
          formatValue: (number, _options, type) => (type === 'percentage' ? `${number}` : formatAmount(number, unit)),
          clearOnComplete: true,
          hideCursor: true,
          barsize: 24,
        });
        bar.start(total, value);
        return;
      }
      bar.setTotal(total);
      bar.update(value);
    },
  };
}

function formatAmount(value: number, unit: 'bytes' | 'tokens'): string {
  return unit === 'bytes' ? formatBytes(value) : `${value}`;
}

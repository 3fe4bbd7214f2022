/**
 * Progress bars on stderr, on terminals only. They change no state of the terminal (cursor, line wrapping), so that no
 * signal can leave it changed.
 */
import { SingleBar } from 'cli-progress';
import { formatBytes } from './format.js';
import type { OutputStream } from './io.js';
import { printable } from '../errors/printable.js';

/** What is counted. */
export type Unit = 'bytes' | 'tokens' | 'texts' | 'layers' | 'steps' | 'lines' | 'parts';

export interface Progress {
  /** Shows `label` at `value` of `total`; a new label starts a new bar. */
  show(label: string, value: number, total: number, unit: Unit): void;
  /** Shows `label` for work whose amount is not known. */
  wait(label: string): void;
  /** Removes the bar. */
  clear(): void;
}

export interface ProgressOptions {
  readonly isQuiet?: boolean;
  /** Milliseconds since any origin. Default: `performance.now`. */
  readonly now?: () => number;
}

const silent: Progress = { show: () => {}, wait: () => {}, clear: () => {} };

const barWidth = 24;
/** Room for percentage, amounts, rate and time. */
const restWidth = 62;
const minLabelWidth = 12;

/** A bar that erases itself, or a no-op when stderr is not a terminal or with --quiet. */
export function createProgress(stderr: OutputStream, options: ProgressOptions = {}): Progress {
  if (options.isQuiet === true || stderr.isTTY !== true) return silent;
  return new Bars(stderr, options.now ?? (() => performance.now()));
}

class Bars implements Progress {
  readonly #stream: OutputStream;
  readonly #now: () => number;
  #bar: SingleBar | undefined;
  #isWaiting = false;
  #label = '';
  #start = { value: 0, ms: 0 };
  /** What was shown last: steps of the same work have different labels but share one rate. */
  #shown: { readonly value: number; readonly total: number; readonly unit: Unit } | undefined;

  constructor(stream: OutputStream, now: () => number) {
    this.#stream = stream;
    this.#now = now;
  }

  show(label: string, value: number, total: number, unit: Unit): void {
    if (value >= total) {
      this.#shown = undefined;
      this.clear();
      return;
    }
    const isNew = label !== this.#label || this.#bar === undefined;
    const last = this.#shown;
    const isSameWork = last !== undefined && last.unit === unit && last.total === total && last.value <= value;
    if (!isSameWork) this.#start = { value, ms: this.#now() };
    this.#shown = { value, total, unit };
    if (isNew) this.#begin(label);
    const payload = { amount: amountText(value, total, unit), pace: this.#pace(value, total, unit) };
    if (isNew) this.#bar?.start(total, value, payload);
    else {
      this.#bar?.setTotal(total);
      this.#bar?.update(value, payload);
    }
  }

  wait(label: string): void {
    this.clear();
    this.#stream.write(`${printable(label)} ...`);
    this.#isWaiting = true;
  }

  clear(): void {
    this.#bar?.stop();
    this.#bar = undefined;
    this.#label = '';
    if (this.#isWaiting) this.#stream.write('\r\u001B[K');
    this.#isWaiting = false;
  }

  #begin(label: string): void {
    this.clear();
    this.#label = label;
    const columns = this.#stream.columns ?? 100;
    const width = Math.max(minLabelWidth, columns - barWidth - restWidth);
    const text = printable(label);
    const shown = text.length <= width ? text : `${text.slice(0, width - 3)}...`;
    this.#bar = new SingleBar({
      stream: this.#stream,
      format: `${shown} [{bar}] {percentage}%  {amount}{pace}`,
      clearOnComplete: true,
      linewrap: true, // lines are cut at the width of the terminal instead
      barsize: columns < barWidth + restWidth ? 8 : barWidth,
    });
  }

  /** Rate and time left, from the first value on. */
  #pace(value: number, total: number, unit: Unit): string {
    const seconds = (this.#now() - this.#start.ms) / 1000;
    const done = value - this.#start.value;
    if (seconds < 0.5 || done <= 0) return '';
    const rate = done / seconds;
    const shown = unit === 'bytes' ? formatBytes(Math.round(rate)) : `${Number(rate.toPrecision(3))} ${unit}`;
    return `  ${shown}/s  ${durationText((total - value) / rate)} left`;
  }
}

function amountText(value: number, total: number, unit: Unit): string {
  return unit === 'bytes' ? `${formatBytes(value)} of ${formatBytes(total)}` : `${value} of ${total} ${unit}`;
}

/** A duration in words, such as `3 min`. */
export function durationText(seconds: number): string {
  if (seconds < 100) return `${Math.ceil(seconds)} s`;
  if (seconds < 6000) return `${Math.round(seconds / 60)} min`;
  return `${Number((seconds / 3600).toPrecision(2))} h`;
}

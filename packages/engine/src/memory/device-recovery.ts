/** Goes on after a lost device: has it replaced, and gives up when one device after another is lost. */
import { DeviceLostError } from '@winnow/tensor';
import type { ReportEvent } from '../metrics/events.js';

/** How many devices in a row may be lost without an answer, before what they ran is taken for the cause. */
const maxFutileLosses = 3;

/** The loss behind an error that others may have wrapped: a read of weights fails because a write to the device does. */
export function lossBehind(error: unknown): DeviceLostError | undefined {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    if (DeviceLostError.isInstance(cause)) return cause;
  }
  return undefined;
}

export interface DeviceRecoveryOptions {
  /** Replaces a lost device, with weights and programs as before and an empty cache. Without it, a loss is final. */
  readonly replaceDevice: (() => Promise<void>) | undefined;
  readonly report: ReportEvent;
}

export class DeviceRecovery {
  readonly #options: DeviceRecoveryOptions;
  #numLosses = 0;
  /** Devices lost since the last answer. */
  #numFutileLosses = 0;

  constructor(options: DeviceRecoveryOptions) {
    this.#options = options;
  }

  /** Devices lost so far. */
  get numLosses(): number {
    return this.#numLosses;
  }

  /** The loss behind an error, when another device can take over. */
  lossOf(error: unknown): DeviceLostError | undefined {
    return this.#options.replaceDevice === undefined ? undefined : lossBehind(error);
  }

  /** Counts and reports a loss. Returns whether what ran may run again; false after too many losses in a row. */
  note({ reason }: DeviceLostError): boolean {
    this.#numLosses++;
    this.#options.report({ kind: 'device-lost', reason });
    if (++this.#numFutileLosses <= maxFutileLosses) return true;
    this.#numFutileLosses = 0;
    return false;
  }

  /** @throws {DeviceLostError} when new devices are lost as well */
  async replace(): Promise<void> {
    await this.#options.replaceDevice?.();
  }

  /** What ran was answered. */
  noteAnswer(): void {
    this.#numFutileLosses = 0;
  }

  /** Runs a task that can be repeated, after a loss once more. @throws {DeviceLostError} when it loses every device */
  async run<T>(task: () => Promise<T>): Promise<T> {
    for (;;) {
      try {
        const result = await task();
        this.noteAnswer();
        return result;
      } catch (error) {
        const lost = this.lossOf(error);
        if (lost === undefined) throw error;
        const mayRepeat = this.note(lost);
        await this.replace();
        if (!mayRepeat) throw lost;
      }
    }
  }
}

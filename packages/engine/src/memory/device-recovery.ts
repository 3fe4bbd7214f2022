/** Recovers from a lost device: replaces it, and gives up when one device after another is lost. */
import { DeviceLostError } from '@winnow/tensor';
import type { ReportEvent } from '../metrics/events.js';

/** Maximum number of devices that may be lost in a row before the task itself is considered the cause. */
const maxFutileLosses = 3;

/**
 * The device loss that caused an error, which may be wrapped: reading weights fails when writing them to the device
 * fails.
 */
export function lossBehind(error: unknown): DeviceLostError | undefined {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    if (DeviceLostError.isInstance(cause)) return cause;
  }
  return undefined;
}

export interface DeviceRecoveryOptions {
  /** Replaces a lost device: same weights and programs, empty cache. Without it, a loss is final. */
  readonly replaceDevice: (() => Promise<void>) | undefined;
  readonly report: ReportEvent;
}

export class DeviceRecovery {
  readonly #options: DeviceRecoveryOptions;
  #numLosses = 0;
  /** Devices lost since the last success. */
  #numFutileLosses = 0;

  constructor(options: DeviceRecoveryOptions) {
    this.#options = options;
  }

  /** Total number of lost devices. */
  get numLosses(): number {
    return this.#numLosses;
  }

  /** The device loss behind an error, if the device can be replaced. */
  lossOf(error: unknown): DeviceLostError | undefined {
    return this.#options.replaceDevice === undefined ? undefined : lossBehind(error);
  }

  /** Counts and reports a loss. Returns whether to retry; false after too many losses in a row. */
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

  /** Notes a success. */
  noteAnswer(): void {
    this.#numFutileLosses = 0;
  }

  /** Runs a repeatable task, again after each loss. @throws {DeviceLostError} when every device is lost */
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

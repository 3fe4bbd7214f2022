/** Recovers the sequences of a model after a device loss: they are recomputed from their tokens. */
import type { DeviceLostError } from '@winnow/tensor';
import type { DeviceRecovery } from '../memory/device-recovery.js';
import type { KvPool } from './kv-pool.js';
import type { Sequence } from './sequence.js';

/** Rejects the requests of those sequences that get an error. */
export type RejectRequests = (errorOf: (sequence: Sequence) => unknown) => void;

export class SequenceRecovery {
  readonly #pool: KvPool;
  readonly #device: DeviceRecovery;
  readonly #reject: RejectRequests;

  constructor(pool: KvPool, device: DeviceRecovery, reject: RejectRequests) {
    this.#pool = pool;
    this.#device = device;
    this.#reject = reject;
  }

  /** Total number of lost devices. */
  get numLosses(): number {
    return this.#device.numLosses;
  }

  /** The device loss behind an error, if the device can be replaced. */
  lossOf(error: unknown): DeviceLostError | undefined {
    return this.#device.lossOf(error);
  }

  /** Notes a success. */
  noteAnswer(): void {
    this.#device.noteAnswer();
  }

  /**
   * Replaces the device. Requests stay in the queue, and their sequences are recomputed first. Requests whose sequences
   * cannot be recomputed are rejected; all of them are if one device after another was lost, or if the device cannot be
   * replaced.
   * @returns the error of each sequence that cannot continue
   * @throws {DeviceLostError} when all requests were rejected
   */
  async recover(lost: DeviceLostError): Promise<ReadonlyMap<Sequence, DeviceLostError>> {
    const failures = this.#pool.forget(lost);
    const mayRepeat = this.#device.note(lost);
    this.#reject((sequence) => (mayRepeat ? failures.get(sequence) : lost));
    try {
      await this.#device.replace();
    } catch (error) {
      this.#reject(() => error);
      throw error;
    }
    if (!mayRepeat) throw lost;
    return failures;
  }
}

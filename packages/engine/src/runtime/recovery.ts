/** Brings the sequences of a model through the loss of its device: they are recomputed from their tokens. */
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

  /** Devices lost so far. */
  get numLosses(): number {
    return this.#device.numLosses;
  }

  /** The loss behind an error, when another device can take over. */
  lossOf(error: unknown): DeviceLostError | undefined {
    return this.#device.lossOf(error);
  }

  /** A request was answered. */
  noteAnswer(): void {
    this.#device.noteAnswer();
  }

  /**
   * Replaces the device. Requests stay in the queue, and their sequences are recomputed first. Those whose sequences cannot be
   * recomputed are rejected; all of them are when they have lost one device after another, or when there is no other device.
   * @returns the error of each sequence that cannot go on
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

/** Combines several backends: the first one that can answer does, such as this device, then a peer, then a cluster. */
import {
  ArgumentError,
  BackendError,
  CapacityError,
  checkOptions,
  DeviceLostError,
  IoError,
  NonFiniteError,
  ReleasedError,
  type OptionNames,
} from '@winnow/tensor';
import { UpstreamError } from './create-openai-backend.js';
import { PulledStream, type TextBackend, type TextPieces, type TextStream } from './text-backend.js';

/** A switch to another backend, after one failed before its first piece. */
export interface Failover {
  readonly from: TextBackend;
  readonly to: TextBackend;
  readonly error: unknown;
}

export interface FailoverOptions {
  /** In order of preference. */
  readonly backends: readonly TextBackend[];
  /**
   * Whether another backend may succeed after an error. Default: true after failures of connections, servers and devices, rejections that
   * depend on the server (keys, models, load), non-finite values, and when the context or memory is too small.
   */
  readonly canRecover?: (error: unknown) => boolean;
  readonly onFailover?: (failover: Failover) => void;
}

const optionNames: OptionNames<FailoverOptions> = { backends: true, canRecover: true, onFailover: true };

/**
 * Once a piece was yielded, an error ends the answer, because another model would continue it differently. An abort never causes a
 * failover.
 * @throws {ArgumentError} without backends
 */
export function createFailoverBackend(options: FailoverOptions): TextBackend {
  checkOptions(options, optionNames);
  const { backends } = options;
  if (backends.length === 0) {
    throw new ArgumentError({ argument: 'backends', expected: 'at least one backend', actual: 'none' });
  }
  const generateStream: TextBackend['generateStream'] = (prompt, given = {}) =>
    new PulledStream(firstOf(options, (backend) => backend.generateStream(prompt, given), given.signal));
  const generate: TextBackend['generate'] = async (prompt, given) => generateStream(prompt, given).result();
  return { name: backends.map(({ name }) => name).join(', '), generate, generateStream };
}

async function* firstOf(
  { backends, canRecover = canRecoverFrom, onFailover }: FailoverOptions,
  open: (backend: TextBackend) => TextStream,
  signal: AbortSignal | undefined,
): TextPieces {
  for (let index = 0; ; index++) {
    const backend = backends[index] as TextBackend;
    let hasBegun = false;
    try {
      const stream = open(backend);
      for await (const { text } of stream) {
        if (text === '') continue;
        hasBegun = true;
        yield { text };
      }
      return await stream.result();
    } catch (error) {
      const next = backends[index + 1];
      if (hasBegun || next === undefined || signal?.aborted === true || !canRecover(error)) throw error;
      onFailover?.({ from: backend, to: next, error });
    }
  }
}

function canRecoverFrom(error: unknown): boolean {
  if (UpstreamError.isInstance(error)) return !error.isRequestAtFault;
  return [IoError, BackendError, DeviceLostError, NonFiniteError, CapacityError, ReleasedError].some((family) =>
    family.isInstance(error),
  );
}

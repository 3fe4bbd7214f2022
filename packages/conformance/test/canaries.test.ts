/** Plants one fault at a time and proves that the suite's checks find it. */
import { createReferenceBackend, type Backend } from '@winnow/ops';
import { DeviceLostError, ReleasedError } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import {
  checkKernelCase,
  checkProgramCase,
  checkUnsupportedCase,
  compareSupport,
  contractChecks,
  float32Arithmetic,
  fullSupport,
  kernelCases,
  programCases,
  rngOf,
  supportTable,
  type KernelCase,
} from '../src/index.js';
import { typicalCase } from './typical-case.js';
import {
  clippingCopies,
  copyingLate,
  honestlyWithout,
  nondeterministic,
  offBy,
  scribbling,
  silentlyFallingBack,
  withExecutable,
  withoutRecords,
  withProgram,
  writingPastTheEnd,
} from './wrong-backends.js';

const arithmetic = float32Arithmetic();

async function failuresOf(backend: Backend, kernelCase: KernelCase): Promise<string> {
  return (await checkKernelCase(backend, kernelCase, { arithmetic })).join('\n');
}

const ops = Object.keys(kernelCases);
/** Ops that only move numbers, choose, or keep what is not read as an output. */
const others = [
  ...['kv-append', 'position-append', 'arg-max', 'top-k', 'clamp-positions', 'active-neurons'],
  ...['block-mean-append', 'block-box-append', 'key-columns-append', 'state-carry', 'scatter-rows'],
];
const computing = ops.filter((op) => !others.includes(op));

describe('a kernel with wrong results or writes', () => {
  it.each(computing)('%s with an error just beyond the bound is caught', async (op) => {
    const kernelCase = typicalCase(op);
    const data = kernelCase.create(rngOf(`${op} ${kernelCase.name}`), arithmetic);
    const expected = Object.values(data.expected).find(({ kind }) => kind === 'close');
    if (expected?.kind !== 'close') throw new Error('a case with numbers');
    const index = expected.values.findIndex((value) => Number.isFinite(value) && value !== 0);
    const bound = expected.bounds[index];
    expect(await failuresOf(createReferenceBackend(), kernelCase)).toBe('');
    const step = Math.abs(expected.values[index]) * 2 ** -22; // what float32 can tell apart
    expect(
      await failuresOf(
        offBy(op, () => 2.1 * bound + step),
        kernelCase,
      ),
    ).toContain('times the bound');
  });

  it.each(ops)('%s that does not write its output is caught', async (op) => {
    // gather-rows also fills the arena of the case itself, and nothing works without it
    expect(await failuresOf(withoutRecords(op), typicalCase(op))).not.toBe('');
  });

  it.each(['arg-max', 'top-k', 'expert-route', 'active-neurons'])('%s with a wrong index is caught', async (op) => {
    const wrong = withExecutable((executable) => ({
      async read(name, target) {
        await executable.read(name, target);
        if (target instanceof Int32Array) target[0] ^= 1;
      },
    }));
    expect(await failuresOf(wrong, typicalCase(op))).toContain('index 0');
  });

  it.each(['add', 'matmul', 'softmax', 'attention', 'rms-norm', 'top-k'])(
    '%s that writes past the end of its output is caught',
    async (op) => {
      expect(await failuresOf(writingPastTheEnd(op), typicalCase(op))).toMatch(/canary .* changed/);
    },
  );
});

describe('a kernel beyond its tensors, its sizes or its backend', () => {
  it('that writes into a guard band or an input is caught', async () => {
    const kernelCase = typicalCase('matmul');
    expect(await failuresOf(scribbling('weight', 0), kernelCase)).toContain('weight: guard band changed');
    expect(await failuresOf(scribbling('weight', -1), kernelCase)).toContain('weight: guard band changed');
    expect(await failuresOf(scribbling('weight', 64 * 4), kernelCase)).toContain('weight: content changed');
  });

  it('that changes other slots of a cache is caught', async () => {
    expect(await failuresOf(scribbling('keys', 64 * 4 + 5), kernelCases['kv-append'][3])).toContain(
      'keys: content changed',
    );
  });

  it('that ignores the sizes of the step is caught', async () => {
    const fixed = withExecutable((executable) => ({
      run: (scalars, options) => {
        const slot = executable.program.scalars.slots.get('T');
        const words = scalars.slice();
        if (slot !== undefined) words[slot.wordOffset] = 1;
        return executable.run(words, options);
      },
    }));
    expect(await failuresOf(fixed, typicalCase('softmax'))).toContain('dynamic sizes');
  });

  it('that depends on other data than its inputs is caught', async () => {
    expect(await failuresOf(nondeterministic(), typicalCase('matmul'))).toContain('differs between two runs');
  });

  it('that fell back silently is caught', async () => {
    expect(await failuresOf(silentlyFallingBack('softmax'), typicalCase('softmax'))).toContain(
      'records of softmax fell back',
    );
  });
});

describe('support', () => {
  it('matches the declaration of a correct backend', async () => {
    const backend = honestlyWithout('softmax');
    expect(await checkUnsupportedCase(backend, typicalCase('softmax'), { arithmetic })).toEqual([]);
    expect(await failuresOf(backend, typicalCase('add'))).toBe('');
    expect(await failuresOf(backend, typicalCase('softmax'))).toContain('UnsupportedOpError');
  });

  it('that is missing or undeclared is a difference', async () => {
    const lost = supportTable(honestlyWithout('softmax'));
    expect(compareSupport(lost, fullSupport())).toEqual([
      'softmax f32: not supported: no kernel, unlike in the expected table',
    ]);
    expect(compareSupport(fullSupport(), lost)).toEqual(['softmax f32: supported, unlike in the expected table']);
    const [failure] = await checkUnsupportedCase(createReferenceBackend(), typicalCase('add'), { arithmetic });
    expect(failure).toContain('says it is supported');
  });
});

const run = async (backend: Backend, names: RegExp): Promise<string> => {
  const failures: string[] = [];
  for (const programCase of programCases.filter(({ name }) => names.test(name))) {
    failures.push(...(await checkProgramCase(backend, programCase, { arithmetic })));
  }
  return failures.join('\n');
};

describe('a program', () => {
  it('whose records run in another order is caught', async () => {
    const reversed = withProgram((program) => {
      const [first, ...rest] = program.records;
      return { ...program, records: [first, ...rest.reverse()] };
    });
    expect(await run(reversed, /over integers/)).not.toBe('');
  });

  it('whose boundaries are skipped is caught', async () => {
    const deaf = withExecutable((executable) => ({ run: (scalars) => executable.run(scalars) }));
    expect(await run(deaf, /pages|edges/)).not.toBe('');
  });

  it('whose segments run before the host resolves its promise is caught', async () => {
    const hasty = withExecutable((executable) => ({
      async run(scalars, options = {}) {
        const late: (() => Promise<void>)[] = [];
        await executable.run(scalars, {
          onBoundary: async (name) => void late.push(async () => options.onBoundary?.(name)),
        });
        for (const call of late) await call();
      },
    }));
    expect(await run(hasty, /pages|edges/)).not.toBe('');
  });
});

describe('a program of a transformer', () => {
  it.each(['rope', 'attention', 'kv-append', 'position-append', 'attention-merge', 'glu', 'rms-norm'])(
    'of a transformer without %s is caught',
    async (op) => {
      const changed = withProgram((program) => ({
        ...program,
        records: program.records.map((record) =>
          record.op === op ? { ...record, op: 'gather-rows', ...nothing } : record,
        ),
      }));
      expect(await run(changed, /transformer, f32/)).not.toBe('');
    },
  );
});

describe('a program of a transformer', () => {
  it('of a transformer with slightly wrong attributes is caught', async () => {
    const changed = withProgram((program) => ({
      ...program,
      records: program.records.map((record) =>
        'eps' in record.attributes ? { ...record, attributes: { eps: 1e-3 } } : record,
      ),
    }));
    expect(await run(changed, /transformer, f32/)).toContain('times the bound');
  });
});

/** Tensors of a gather of no rows, into nothing. */
const nothing = {
  inputs: {
    x: { name: 'x', buffer: 1, byteOffset: 0, dtype: 'f32', shape: [0, 0] },
    rows: { name: 'rows', buffer: 0, byteOffset: 0, dtype: 'i32', shape: [0] },
  },
  outputs: { y: { name: 'y', buffer: 1, byteOffset: 0, dtype: 'f32', shape: [0, 0] } },
  attributes: {},
} as const;

const reference = createReferenceBackend;

const faults: [check: string, fault: string, () => Backend][] = [
  ['unknown ops are rejected', 'supports anything', () => ({ ...reference(), supports: () => ({ supported: true }) })],
  [
    'mismatched scalars are rejected',
    'runs with any scalars',
    () =>
      withExecutable((executable) => ({
        run: async (scalars, options) => {
          if (scalars.length === executable.program.scalars.numWords && scalars[0] >= 0 && scalars[0] <= 3) {
            await executable.run(scalars, options);
          }
        },
      })),
  ],
  [
    'memory is written and read in range',
    'clips ranges',
    () => {
      const backend = reference();
      return {
        ...backend,
        write: (handle, byteOffset, bytes) =>
          backend.write(handle, Math.max(0, byteOffset), bytes.subarray(0, handle.sizeBytes - Math.max(0, byteOffset))),
      };
    },
  ],
  ['foreign, missing and small buffers are rejected', 'takes any buffer', () => ({ ...reference(), free: () => {} })],
  ['freed buffers are rejected', 'never frees', () => ({ ...reference(), free: () => {} })],
  ['bytes are copied between and within buffers', 'copies nothing', () => ({ ...reference(), copy: async () => {} })],
  ['invalid copies are rejected', 'copies only the part within range', clippingCopies],
  ['copies and runs keep their order', 'copies too late', copyingLate],
  [
    'limits are true',
    'promises more than there is',
    () => ({
      ...reference(),
      limits: { maxBufferBytes: 2 ** 50, maxTotalBytes: 2 ** 50, copyAlignment: 1 },
    }),
  ],
  [
    'a working device is not lost',
    'says it is lost',
    () => ({
      ...reference(),
      lost: Promise.resolve(new DeviceLostError({ backend: 'reference', reason: 'made up' })),
    }),
  ],
  ['reads of missing outputs are rejected', 'reads anything', () => withExecutable(() => ({ read: async () => {} }))],
  [
    'abort and failing boundaries leave the executable usable',
    'ignores signals',
    () =>
      withExecutable((executable) => ({
        run: (scalars, { onBoundary } = {}) => executable.run(scalars, onBoundary === undefined ? {} : { onBoundary }),
      })),
  ],
  [
    'abort and failing boundaries leave the executable usable',
    'is broken after an abort',
    () =>
      withExecutable((executable) => {
        let isBroken = false;
        return {
          async run(scalars, options) {
            if (isBroken) throw new ReleasedError('executable');
            await executable.run(scalars, options).catch((error: unknown) => {
              isBroken = true;
              throw error;
            });
          },
        };
      }),
  ],
  [
    'one run at a time',
    'queues runs',
    () =>
      withExecutable((executable) => {
        let isBusy = false;
        return {
          async run(scalars, options) {
            if (isBusy) return;
            isBusy = true;
            await executable.run(scalars, options);
            isBusy = false;
          },
        };
      }),
  ],
  ['nothing works after dispose', 'never disposes', () => withExecutable(() => ({ dispose: async () => {} }))],
  ['the event loop keeps running', 'blocks', () => createReferenceBackend({ yieldToHost: () => Promise.resolve() })],
  ['runs are bit-identical', 'gives other bits', nondeterministic],
  ['the bits of a token do not depend on the other tokens of its step', 'gives other bits', nondeterministic],
  ['several passes over neurons are bit-identical to one', 'gives other bits', nondeterministic],
  ['profile counts records, runs and work', 'has no profile', () => withExecutable(() => ({ profile: () => [] }))],
  ['programs share buffers', 'writes to weights', () => scribbling('table', 2 * 16 + 1)],
];

describe('the contract', () => {
  it('has a fault for every check', () => {
    expect(new Set(faults.map(([check]) => check))).toEqual(new Set(Object.keys(contractChecks)));
  });

  it.each(faults)('"%s" catches a backend that %s', async (check, _fault, create) => {
    const failures = await contractChecks[check](async () => create()).catch((error: unknown) => [String(error)]);
    expect(failures).not.toEqual([]);
  });
});

import { ProgramBuilder, type Backend, type Program } from '@winnow/ops';
import { milliseconds, type Figure, type Rate } from '../harness/figure.js';
import { asFloats, LoadedProgram } from '../harness/loaded-program.js';
import { measure, type Contender } from '../harness/measure.js';
import { measureOptions, threadsText, type Suite, type SuiteContext } from '../harness/suite.js';

const suite = 'overhead';

/** Chains of additions, named by their size. */
interface Chain {
  readonly name: string;
  readonly numRecords: number;
  /** Rows in use, out of the `maxRows` of the program. */
  readonly numRows: number;
  readonly maxRows: number;
}

const rowLength = 64;

function chainsOf(quick: boolean): Record<'empty' | 'tiny' | 'shared' | 'run', Chain> {
  const numRecords = quick ? 100 : 2000;
  return {
    empty: { name: 'op without elements', numRecords, numRows: 0, maxRows: 1 },
    tiny: { name: 'op of one row', numRecords, numRows: 1, maxRows: 1 },
    shared: { name: 'op of 1024 rows', numRecords: numRecords / 10, numRows: 1024, maxRows: 1024 },
    run: { name: 'run of one record', numRecords: 1, numRows: 1, maxRows: 1 },
  };
}

/** The cost of an op with little or no work, of a barrier between threads, and of a run. */
export const overhead: Suite = {
  name: suite,
  summary: 'overhead of an op without work, of a barrier, and of a run',
  async *run(context) {
    const { threads: threadCounts, quick } = context.options;
    const [minThreads = 1] = threadCounts;
    const chains = chainsOf(quick);
    const timings = await measureChains(context, Object.entries(chains));
    const cost = (key: keyof typeof chains, threads: number): Rate =>
      milliseconds(timings[`${key} ${threads}`]!, chains[key].numRecords / 1000);
    for (const key of Object.keys(chains) as (keyof typeof chains)[]) {
      for (const threads of threadCounts) {
        // compared with another kind of op at the smallest number of threads, with itself at more
        const other = threads > minThreads ? key : key === 'empty' ? 'tiny' : 'empty';
        const rate = cost(key, threads);
        const ratio = rate.value / cost(other, minThreads).value;
        const caseName = `${chains[key].name}, ${threadsText(threads)}`;
        const ratioOf = `${chains[other].name}, ${threadsText(minThreads)}`;
        yield { suite, case: caseName, ...rate, unit: 'us', ratio, ratioOf } satisfies Figure;
        if (key !== 'shared' || threads === minThreads) continue;
        const ideal = cost('shared', minThreads);
        const share = minThreads / threads;
        const meeting = { value: rate.value - ideal.value * share, best: rate.best - ideal.best * share };
        yield {
          suite,
          case: `${caseName}: excess over its share`,
          ...meeting,
          unit: 'us',
          ratio: meeting.value / rate.value,
          ratioOf: 'the total',
        };
      }
    }
  },
};

async function measureChains({ options, createBackend }: SuiteContext, chains: [string, Chain][]) {
  const contenders: Record<string, Contender> = {};
  const backends: Backend[] = [];
  try {
    for (const threads of options.threads) {
      const backend = await createBackend(threads, 'workers');
      backends.push(backend);
      for (const [key, chain] of chains) contenders[`${key} ${threads}`] = await loadChain(backend, chain);
    }
    return await measure(contenders, measureOptions(options, 21));
  } finally {
    for (const backend of backends) await backend.dispose();
  }
}

async function loadChain(backend: Backend, chain: Chain): Promise<LoadedProgram> {
  const fill = (_: string, target: Uint8Array): void => void asFloats(target).fill(1 / 1024);
  const loaded = await LoadedProgram.load(backend, chainProgram(chain), fill, 'y');
  loaded.scalars.bind('T', chain.numRows);
  return loaded;
}

/** The chain, and one more addition of fixed size, so that there is an output to check. */
function chainProgram({ numRecords, maxRows }: Chain): Program {
  const b = new ProgramBuilder({ T: maxRows });
  const table = b.external('table', 'weights', 'f32', [1, rowLength]);
  const x = b.external('x', 'kv', 'f32', [1, rowLength]);
  const first = b.activation('embedding-lookup', { table, tokens: b.scalar('tokens', ['T']) });
  let sum = first;
  for (let i = 0; i < numRecords; i++) sum = b.activation('add', { a: sum, b: first });
  b.output('sum', sum);
  b.output('y', b.activation('add', { a: x, b: x }));
  return b.build();
}

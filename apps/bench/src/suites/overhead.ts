import { ProgramBuilder, type Backend, type Program } from '@winnow/ops';
import { milliseconds } from '../harness/figure.js';
import { asFloats, loadProgram, type LoadedProgram } from '../harness/loaded-program.js';
import { measure, type Contender } from '../harness/measure.js';
import { measureOptions, threadsText, type Suite } from '../harness/suite.js';

/** What one op costs when it has nothing, or next to nothing, to do. */
export const overhead: Suite = {
  name: 'overhead',
  summary: 'cost of an op with no work in a long program, and of running a program at all',
  async *run({ options, createBackend }) {
    const numRecords = options.quick ? 100 : 2000;
    const [fewest = 1] = options.threads;
    const contenders: Record<string, Contender> = {};
    const backends: Backend[] = [];
    for (const threads of options.threads) {
      const backend = await createBackend(threads);
      backends.push(backend);
      contenders[`empty ${threads}`] = await loadAdds(backend, numRecords, 0);
      contenders[`tiny ${threads}`] = await loadAdds(backend, numRecords, 1);
      contenders[`run ${threads}`] = await loadAdds(backend, 1, 1);
    }
    const timings = await measure(contenders, measureOptions(options, 21)).finally(async () => {
      for (const backend of backends) await backend.dispose();
    });
    const cases = { empty: 'op without elements', tiny: 'op of one row', run: 'run of one record' };
    for (const [key, name] of Object.entries(cases)) {
      for (const threads of options.threads) {
        const records = key === 'run' ? 1 : numRecords;
        const rate = milliseconds(timings[`${key} ${threads}`]!, records / 1000);
        // against the other kind of op at the fewest threads, against itself at more
        const other = threads === fewest ? (key === 'empty' ? 'tiny' : 'empty') : key;
        const otherRecords = other === 'run' ? 1 : numRecords;
        const base = milliseconds(timings[`${other} ${fewest}`]!, otherRecords / 1000);
        const ratioOf = `${cases[other as keyof typeof cases]}, ${threadsText(fewest)}`;
        const caseName = `${name}, ${threadsText(threads)}`;
        yield { suite: 'overhead', case: caseName, ...rate, unit: 'us', ratio: rate.value / base.value, ratioOf };
      }
    }
  },
};

const rowLength = 64;

/** A chain of additions of `[numTokens, 64]`, after a row that is there in any case, so that there is an output. */
async function loadAdds(backend: Backend, numRecords: number, numTokens: number): Promise<LoadedProgram> {
  const loaded = await loadProgram(
    backend,
    addProgram(numRecords),
    (_, target) => void asFloats(target).fill(1 / 1024),
    'y',
  );
  loaded.scalars.bind('T', numTokens);
  return loaded;
}

function addProgram(numRecords: number): Program {
  const b = new ProgramBuilder({ T: 1 });
  const table = b.external('table', 'weights', 'f32', [1, rowLength]);
  const x = b.external('x', 'kv', 'f32', [1, rowLength]);
  const fixed = b.activation('add', { a: x, b: x });
  const first = b.activation('embedding-lookup', { table, tokens: b.scalar('tokens', ['T']) });
  let sum = first;
  for (let i = 0; i < numRecords; i++) sum = b.activation('add', { a: sum, b: first });
  b.output('sum', sum);
  b.output('y', fixed);
  return b.build();
}

import { gigaPerSecond, type Figure } from '../harness/figure.js';
import { measure } from '../harness/measure.js';
import { measureOptions, threadsText, type Suite } from '../harness/suite.js';
import { nativeProbeNames, probeNames, type Probe, type ProbeName } from '../roofline/machine.js';

/** The baseline of each probe at one thread; with more threads it is compared with itself at one. */
const counterparts: Readonly<Record<ProbeName, ProbeName>> = {
  'memory read': 'cache read',
  'cache read': 'memory read',
  'f32 mul+add': 'f32 relaxed madd',
  'f32 relaxed madd': 'f32 mul+add',
  'f32 tile 4x8': 'f32 relaxed madd',
  'i16 dot': 'i8 relaxed dot',
  'i8 relaxed dot': 'i16 dot',
  'native memory read': 'memory read',
  'native f32 fma': 'f32 relaxed madd',
  'native i8 dot': 'i8 relaxed dot',
};

/** The peaks of this machine from WebAssembly, with `--native` also from native code, all measured in turns. */
export const roofline: Suite = {
  name: 'roofline',
  summary: 'peaks of this machine through WebAssembly, and natively: memory, float and integer multiply-adds',
  async *run({ options, machine, nativeLevel }) {
    const names = nativeLevel === undefined ? probeNames : [...probeNames, ...nativeProbeNames];
    const [minThreads = 1] = options.threads;
    const found = new Map<string, Probe>();
    const key = (name: ProbeName, threads: number): string => `${name}, ${threadsText(threads)}`;
    for (const threads of options.threads) {
      for (const name of names) found.set(key(name, threads), await machine.probe(name, threads));
    }
    const timings = await measure(Object.fromEntries(found), measureOptions(options, 15));
    for (const [caseName, { name, threads, amount, unit }] of found) {
      const ratioOf = threads === minThreads ? key(counterparts[name], threads) : key(name, minThreads);
      const other = found.get(ratioOf) as Probe;
      const rate = gigaPerSecond(amount, timings[caseName]!);
      const ratio = rate.value / gigaPerSecond(other.amount, timings[ratioOf]!).value;
      yield { suite: 'roofline', case: caseName, ...rate, unit, ratio, ratioOf } satisfies Figure;
    }
  },
};

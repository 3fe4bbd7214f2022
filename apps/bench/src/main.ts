import { measureBusyCores } from './harness/environment.js';
import { runBench } from './run-bench.js';

process.exitCode = await runBench(process.argv.slice(2), {
  out: (text) => void process.stdout.write(text),
  progress: (text) => void process.stderr.write(text),
  busyCores: measureBusyCores,
});

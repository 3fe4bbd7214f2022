import { runLong, type LongTask } from './long-run.js';

const outcome = await runLong(JSON.parse(process.argv[2] ?? '') as LongTask);
process.stdout.write(`${JSON.stringify(outcome)}\n`);

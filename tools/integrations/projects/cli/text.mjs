import { execFileSync } from 'node:child_process';

const [program, ...before] = process.argv.slice(2);
const flags = ['run', '-p', 'The old man looked at the sea and', '-n', '20', '--temperature', '0', '--json'];
// a cache of its own, so that npx does not run what an earlier project left
const env = { ...process.env, npm_config_cache: `${import.meta.dirname}/npm-cache` };
const output = execFileSync(program, [...before, ...flags], { encoding: 'utf8', env });
console.log(JSON.stringify(JSON.parse(output).text));

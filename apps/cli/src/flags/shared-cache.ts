/** The KV cache that several sessions share. */
import type { Command } from 'commander';
import { addGroup, choiceOption, flag, numberOption, numberRules } from './builders.js';

/** The flags of the KV cache that all requests share. */
export function addSharedCacheOptions(command: Command): void {
  addGroup(command, {
    heading: 'Context and KV cache',
    advanced: [
      numberOption(
        '--kv-capacity <n>',
        'capacity of the KV cache in tokens, shared by all requests (default: --context)',
        numberRules.count,
      ),
      choiceOption(
        '--kv-when-full <action>',
        'a request that finds the KV cache full waits for others or fails',
        ['wait', 'error'],
        'wait',
      ),
      flag('--no-kv-prefix-sharing', 'compute each prompt in full, also the prefix that it shares with others'),
    ],
  });
}

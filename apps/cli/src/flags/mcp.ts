/** Flags of tools of MCP servers. */
import type { Command } from 'commander';
import type { ToolChoice } from '@winnow/engine';
import { addGroup, listOption, numberOption, numberRules, parsedOption } from './builders.js';

export interface McpFlags {
  readonly mcp?: readonly string[];
  readonly mcpAllow?: readonly string[];
  readonly mcpHeader?: readonly string[];
  readonly mcpEnv?: readonly string[];
  readonly mcpTimeout: number;
  readonly toolChoice?: ToolChoice;
}

/** Seconds. */
const defaultTimeout = 60;

export function addMcpOptions(command: Command): Command {
  return addGroup(command, {
    heading: 'Tools',
    common: [
      listOption('--mcp <command|url>', 'use the tools of an MCP server; may be repeated'),
      listOption('--mcp-allow <tool>', 'call this tool without asking; may be repeated'),
    ],
    advanced: [
      listOption(
        '--mcp-header <header>',
        "send 'NAME: VALUE' to the URL of --mcp; with several: 'URL NAME: VALUE'; may be repeated",
      ),
      listOption('--mcp-env <name=value>', 'set a variable of the environment of commands of --mcp; may be repeated'),
      numberOption(
        '--mcp-timeout <s>',
        'seconds without an answer or progress after which a call fails',
        numberRules.positive,
      ).default(defaultTimeout),
      parsedOption(
        '--tool-choice <choice>',
        'whether each reply begins with a call: auto, none, required, or the name of a tool (default: auto)',
        (_name, text): ToolChoice =>
          text === 'auto' || text === 'none' || text === 'required' ? text : { name: text },
      ),
    ],
  });
}

/** Flag of the first of these that was given without `--mcp`. */
export function flagWithoutServer({ mcp, mcpAllow, mcpHeader, mcpEnv, toolChoice }: McpFlags): string | undefined {
  if (mcp !== undefined) return undefined;
  if (mcpAllow !== undefined) return '--mcp-allow';
  if (mcpHeader !== undefined) return '--mcp-header';
  if (mcpEnv !== undefined) return '--mcp-env';
  return toolChoice === undefined ? undefined : '--tool-choice';
}

"""`vllm bench serve` without the rest of vLLM: its own entry point, called as its command line does."""
import argparse

from vllm.benchmarks.serve import add_cli_args, main

parser = argparse.ArgumentParser()
add_cli_args(parser)
main(parser.parse_args())

// What cc1plus compiles: common headers and enough template instantiations to make its stacks diverse.
#include <algorithm>
#include <iostream>
#include <map>
#include <string>
#include <vector>

int main() {
  std::map<std::string, std::vector<int>> index;
  for (int i = 0; i < 100; i++) index[std::to_string(i)].push_back(i);
  for (auto &[name, numbers] : index) {
    std::sort(numbers.begin(), numbers.end(), [](int a, int b) { return a > b; });
    std::cout << name << numbers.size() << '\n';
  }
}

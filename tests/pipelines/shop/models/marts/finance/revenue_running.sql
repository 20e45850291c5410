select ordered_on, revenue, sum(revenue) over (order by ordered_on rows unbounded preceding) as revenue_so_far
from {{ ref('revenue_by_day') }}
